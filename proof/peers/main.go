// The relay that ours is compared with: Benthos, which is Redpanda Connect under its former name, with the parts that
// the comparison needs. Built by `make bench-peers` from its published module; configured by connect.yaml.
package main

import (
	"context"
	"net/http"
	"os"
	"strconv"

	_ "github.com/benthosdev/benthos/v4/public/components/io"
	_ "github.com/benthosdev/benthos/v4/public/components/kafka"
	_ "github.com/benthosdev/benthos/v4/public/components/pure"
	"github.com/benthosdev/benthos/v4/public/service"
)

func main() {
	keepConnections()
	service.RunCLI(context.Background())
}

// Its client has the transport that is Go's default, which keeps two connections to a host: nearly every request would
// open one. Here as many are kept as there are requests at a time, as the other relays do.
func keepConnections() {
	transport, ok := http.DefaultTransport.(*http.Transport)
	inFlight, err := strconv.Atoi(os.Getenv("CONCURRENCY"))
	if !ok || err != nil {
		return
	}
	transport.MaxIdleConns = inFlight
	transport.MaxIdleConnsPerHost = inFlight
}
