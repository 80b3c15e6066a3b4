package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
)

// receiver is the webhook's destination.
type receiver struct {
	journal  *journal
	listener net.Listener
	group    sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool
}

func newReceiver(ctx context.Context, j *journal) (*receiver, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{journal: j, listener: listener, open: map[net.Conn]bool{}}
	r.group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.open[conn] = true
			r.mu.Unlock()
			r.group.Go(func() {
				_ = r.serve(conn) // it ends when the sender closes
				r.mu.Lock()
				delete(r.open, conn)
				r.mu.Unlock()
				conn.Close()
			})
		}
	})
	return r, nil
}

func (r *receiver) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	for conn := range r.open {
		conn.Close()
	}
	r.mu.Unlock()
	r.group.Wait()
}

func (r *receiver) serve(conn net.Conn) error {
	in := bufio.NewReaderSize(conn, 4096)
	answer := []byte("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n") // so that the generator may send here too
	number := make([]byte, digits)
	for {
		if _, err := in.ReadSlice('\n'); err != nil { // the request line
			return err
		}
		length, err := readHeaders(in)
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(in, number); err != nil {
			return err
		}
		if _, err := in.Discard(length - digits); err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(number), 10, 64)
		if err != nil || n >= int64(len(r.journal.delivered)) {
			return fmt.Errorf("not a payload of this run: %q", number)
		}
		if r.journal.delivered[n].CompareAndSwap(0, r.journal.now()) {
			r.journal.deliveredCount.Add(1)
		} else {
			r.journal.repeats.Add(1)
		}
		if _, err := conn.Write(answer); err != nil {
			return err
		}
	}
}
