// Command serve runs the fake by itself, so that other tools can be pointed at it:
//
//	go run ./internal/fakedynamo/serve -listen 127.0.0.1:8001
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"gobridge/internal/fakedynamo"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8001", "loopback address to listen on")
	overlap := flag.Bool("overlap", false, "let transactions take time, so that they conflict")
	flag.Parse()
	server := &http.Server{
		Addr:              *listen,
		Handler:           fakedynamo.New(fakedynamo.Options{Overlap: *overlap}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	fmt.Printf("fake DynamoDB on http://%s\n", *listen)
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}
