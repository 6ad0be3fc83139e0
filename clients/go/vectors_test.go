package receiver

// The vectors that all kits share, and what the README shows.

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

type verdict struct{ Key, Refused string }

var vectors = func() (read struct {
	Table   string
	Secrets []struct {
		Name, Text, Hex string
		Refused         bool
	}
	Signatures []struct {
		Name    string
		Secrets []string
		Headers [][2]string
		Body    string
		Now     int64
		Result  string
	}
	Requests []struct {
		Name             string
		Headers          [][2]string
		Body             string
		Read, ReadSigned verdict
		Fields           struct {
			Event, Fence, Source, Digest string
			Attempt                      int32
		}
	}
	Digests []struct{ Body, Digest string }
}) {
	text, err := os.ReadFile("../vectors.json")
	if err == nil {
		err = json.Unmarshal(text, &read)
	}
	if err != nil {
		panic(err)
	}
	return read
}()

func headerOf(pairs [][2]string) http.Header {
	header := http.Header{}
	for _, pair := range pairs {
		header.Add(pair[0], pair[1])
	}
	return header
}

func TestSecrets(t *testing.T) {
	for _, one := range vectors.Secrets {
		secret, err := SecretIn(one.Text)
		if (err != nil) != one.Refused || hex.EncodeToString(secret) != one.Hex {
			t.Errorf("%s: %x, %v", one.Name, secret, err)
		}
	}
}

func TestSignatures(t *testing.T) {
	for _, one := range vectors.Signatures {
		var secrets [][]byte
		for _, text := range one.Secrets {
			secret, _ := SecretIn(text)
			secrets = append(secrets, secret)
		}
		result, reason := "good", Unverified("")
		err := Verify(secrets, headerOf(one.Headers), []byte(one.Body), time.Unix(one.Now, 0))
		if errors.As(err, &reason) {
			result = string(reason)
		}
		if result != one.Result {
			t.Errorf("%s: %s, not %s", one.Name, result, one.Result)
		}
	}
}

func TestRequests(t *testing.T) {
	for _, one := range vectors.Requests {
		try := func(kind string, read func(http.Header, []byte) (Event, error), expected verdict) {
			event, err := read(headerOf(one.Headers), []byte(one.Body))
			var refused Refused
			errors.As(err, &refused)
			if found := (verdict{event.Key, string(refused)}); found != expected {
				t.Errorf("%s: %s: %v, not %v", one.Name, kind, found, expected)
			}
			if err != nil {
				return
			}
			fields, fence := one.Fields, ""
			if event.Fence.Valid {
				fence = strconv.FormatInt(event.Fence.Int64, 10)
			}
			if event.Event != fields.Event || event.Attempt != fields.Attempt || fence != fields.Fence ||
				event.Source != fields.Source || event.Digest != fields.Digest {
				t.Errorf("%s: %s: %+v, not %+v", one.Name, kind, event, fields)
			}
		}
		try("read", Read, one.Read)
		try("readSigned", ReadSigned, one.ReadSigned)
	}
}

func TestDigests(t *testing.T) {
	for _, one := range vectors.Digests {
		if digest := DigestOf([]byte(one.Body)); digest != one.Digest {
			t.Errorf("%q: %s", one.Body, digest)
		}
	}
}

func TestTable(t *testing.T) {
	if words := strings.Join(strings.Fields(Table), " "); words != strings.Join(strings.Fields(vectors.Table), " ") {
		t.Error(words)
	}
}

func TestCodeInTheReadmeIsCodeThatRuns(t *testing.T) {
	readme, _ := os.ReadFile("README.md")
	sample, _ := os.ReadFile("sample/main.go")
	blocks := strings.Split(string(readme), "```go\n")[1:]
	for _, block := range blocks {
		block, _, _ := strings.Cut(block, "```")
		if !strings.Contains(string(sample), block) {
			t.Error(block)
		}
	}
	if len(blocks) == 0 {
		t.Error("it shows none")
	}
}
