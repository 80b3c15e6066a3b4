package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// The generator speaks just enough HTTP/1.1 over kept connections, and writes
// every request from one buffer: net/http's client would cost about as much as
// what is measured.

// digits is how a message's number stands in its ID and at the start of its payload.
const digits = 12

// keysInUse is over how many ordering keys the messages are spread.
const keysInUse = 1000

// journal has the times of every message by its number, in nanoseconds since start.
type journal struct {
	start     time.Time
	next      atomic.Int64 // number of the next message
	sent      []int64
	accepted  []int64
	delivered []atomic.Int64 // first arrival; zero before

	acceptedCount  atomic.Int64
	deliveredCount atomic.Int64
	repeats        atomic.Int64
}

func newJournal(capacity int) *journal {
	return &journal{start: time.Now(), sent: make([]int64, capacity),
		accepted: make([]int64, capacity), delivered: make([]atomic.Int64, capacity)}
}

func (j *journal) now() int64 { return int64(time.Since(j.start)) }

// request is one connection's buffer of a request; only the number and the key
// are written anew.
type request struct {
	bytes       []byte
	id, key, at int // where the number stands in the ID, the key and the payload
}

func newRequest(host string) *request {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /bench HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\n"+
		"Content-Length: %d\r\nIdempotency-Key: ", host, payloadSize)
	r := &request{id: b.Len()}
	b.Write(make([]byte, digits))
	b.WriteString("\r\nGobridge-Ordering-Key: ")
	r.key = b.Len()
	b.Write(make([]byte, digits))
	b.WriteString("\r\n\r\n")
	r.at = b.Len()
	b.Write(bytes.Repeat([]byte{'x'}, payloadSize))
	r.bytes = b.Bytes()
	return r
}

func (r *request) number(n int64) []byte {
	writeNumber(r.bytes[r.id:r.id+digits], n)
	writeNumber(r.bytes[r.key:r.key+digits], n%keysInUse)
	writeNumber(r.bytes[r.at:r.at+digits], n)
	return r.bytes
}

func writeNumber(into []byte, n int64) {
	for i := len(into) - 1; i >= 0; i-- {
		into[i] = byte('0' + n%10)
		n /= 10
	}
}

// errEnough says that the journal has no room for another message.
var errEnough = errors.New("the run made more messages than it has room for")

// produce sends over so many connections until the context ends. With a rate
// above zero, messages leave at that many a second altogether, whether or not
// earlier ones have been answered, as far as there are connections.
func produce(ctx context.Context, j *journal, address string, connections int, rate float64) error {
	begun := time.Now()
	var turn atomic.Int64
	var group sync.WaitGroup
	failures := make(chan error, connections)
	for range connections {
		group.Go(func() {
			wait := func() bool {
				if rate <= 0 {
					return ctx.Err() == nil
				}
				due := begun.Add(time.Duration(float64(turn.Add(1)) / rate * float64(time.Second)))
				select {
				case <-ctx.Done():
					return false
				case <-time.After(time.Until(due)):
					return true
				}
			}
			if err := producer(ctx, j, address, wait); err != nil {
				failures <- err
			}
		})
	}
	group.Wait()
	close(failures)
	return <-failures
}

func producer(ctx context.Context, j *journal, address string, wait func() bool) error {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 4096)
	request := newRequest(address)
	for wait() {
		n := j.next.Add(1) - 1
		if n >= int64(len(j.sent)) {
			return errEnough
		}
		j.sent[n] = j.now()
		if _, err := conn.Write(request.number(n)); err != nil {
			return err
		}
		status, length, err := readHead(in)
		if err != nil {
			return err
		}
		if _, err := in.Discard(length); err != nil {
			return err
		}
		if status != 202 {
			return fmt.Errorf("message %d was answered %d", n, status)
		}
		j.accepted[n] = j.now()
		j.acceptedCount.Add(1)
	}
	return nil
}

// readHead reads a status line and the headers, and returns the status and the
// length of the body.
func readHead(in *bufio.Reader) (status, length int, err error) {
	first, err := in.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(first) < 12 {
		return 0, 0, fmt.Errorf("no status line: %q", first)
	}
	if status, err = strconv.Atoi(string(first[9:12])); err != nil {
		return 0, 0, fmt.Errorf("no status line: %q", first)
	}
	length, err = readHeaders(in)
	return status, length, err
}

// readHeaders reads headers to their end and returns the length of the body.
func readHeaders(in *bufio.Reader) (length int, err error) {
	const name = "content-length:"
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			return length, nil
		}
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return 0, err
			}
		}
	}
}
