// An HTTP server of Go's standard library, and a client with many connections open at once.
//
// usage: web serve PORT | call URL CONNECTIONS REQUESTS
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

// One request in so many computes for longer than the runtime lets a goroutine: it is stopped by a signal (SIGURG).
const between = 100

var requests, result atomic.Int64

func compute() {
	sum := int64(0)
	for turn := int64(0); turn < 30_000_000; turn++ {
		sum = sum*31 + turn
	}
	result.Store(sum)
}

// Answers with what it was sent.
func echo(response http.ResponseWriter, request *http.Request) {
	if requests.Add(1)%between == 0 {
		compute()
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	response.Write(body)
}

func once(client *http.Client, url string, body []byte) error {
	answer, err := client.Post(url, "text/plain", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	found, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || !bytes.Equal(found, body) {
		return fmt.Errorf("status %d, %d bytes for %d", answer.StatusCode, len(found), len(body))
	}
	return nil
}

// All connections are open before one makes its second request.
func call(url string, connections, turns int) error {
	var open, done sync.WaitGroup
	open.Add(connections)
	done.Add(connections)
	failed := make(chan error, connections)
	for number := range connections {
		go func() {
			defer done.Done()
			client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{}).DialContext}}
			defer client.CloseIdleConnections()
			body := bytes.Repeat([]byte{byte(number)}, 10+number*7)
			err := once(client, url, body)
			open.Done()
			open.Wait()
			for turn := 1; turn < turns && err == nil; turn++ {
				err = once(client, url, body)
			}
			if err != nil {
				failed <- err
			}
		}()
	}
	done.Wait()
	select {
	case err := <-failed:
		return fmt.Errorf("%d of %d connections failed, the first one: %w", len(failed)+1, connections, err)
	default:
		fmt.Printf("%d connections, %d requests on each\n", connections, turns)
		return nil
	}
}

// What else the runtime does by itself: a signal becomes a panic, a child shares memory until its exec, a thread ends.
func habits() (err error) {
	defer func() {
		if _, isFault := recover().(runtime.Error); isFault {
			err = nil
		}
	}()
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		ended <- exec.Command("/bin/true").Run()
	}()
	if err := <-ended; err != nil {
		return err
	}
	var nowhere *int
	return fmt.Errorf("nothing gave %d", *nowhere)
}

func run(words []string) error {
	if err := habits(); err != nil {
		return err
	}
	if len(words) == 2 && words[0] == "serve" {
		return http.ListenAndServe("0.0.0.0:"+words[1], http.HandlerFunc(echo))
	}
	if len(words) != 4 || words[0] != "call" {
		return fmt.Errorf("usage: web serve PORT | call URL CONNECTIONS REQUESTS")
	}
	connections, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	turns, err := strconv.Atoi(words[3])
	if err != nil {
		return err
	}
	return call(words[1], connections, turns)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}
