// The relay that ours is compared with: Benthos, which is Redpanda Connect under its former name, with the parts that
// the comparison needs. Built by `make bench-peers` from its published module; configured by connect.yaml.
package main

import (
	"context"

	_ "github.com/benthosdev/benthos/v4/public/components/io"
	_ "github.com/benthosdev/benthos/v4/public/components/kafka"
	_ "github.com/benthosdev/benthos/v4/public/components/pure"
	"github.com/benthosdev/benthos/v4/public/service"
)

func main() { service.RunCLI(context.Background()) }
