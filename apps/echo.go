// An echo server as one writes it in Go: a goroutine for each connection, the standard library's net package.
//
// usage: echo -p PORT; the other words of apps/rpc_server are taken, too, so that `opentoe bench echo --server` can
// start it: go build -o /tmp/echo apps/echo.go
package main

import (
	"flag"
	"log"
	"net"
)

func echo(connection net.Conn) {
	defer connection.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := connection.Read(buffer)
		if n > 0 {
			if _, err := connection.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func main() {
	port := flag.String("p", "7777", "port")
	flag.Int("s", 0, "bytes of a request, which are those of the reply")
	flag.Int("r", 0, "bytes of a reply")
	flag.Parse()
	listener, err := net.Listen("tcp4", ":"+*port)
	if err != nil {
		log.Fatal(err)
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go echo(connection)
	}
}
