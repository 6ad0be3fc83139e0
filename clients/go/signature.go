// Package receiver is what an endpoint needs to apply each event of Oncebox once. In reading order: signature.go, event.go,
// once.go.
//
// Bytes and headers enter, Verify says whether to believe them, Read takes the key out, and Once.Process has the effect in
// the transaction that also holds the key.
package receiver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Tolerance is how far the clocks may be apart, and how long a request may be on its way.
const Tolerance = 5 * time.Minute

// Unverified is an error of Verify. Answer 401: it is tried again.
type Unverified string

const (
	Unsigned Unverified = "unsigned" // a header is missing or is none
	Expired  Unverified = "expired"
	Wrong    Unverified = "wrong"
)

func (reason Unverified) Error() string { return "the signature is not good: " + string(reason) }

// SecretIn returns the bytes of a secret: base64, behind whsec_ or bare.
func SecretIn(text string) ([]byte, error) {
	secret, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(text, "whsec_"))
	if err != nil || len(secret) == 0 || strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("the secret is not base64")
	}
	return secret, nil
}

// Verify checks a signature as Standard Webhooks has it: HMAC-SHA256 over `webhook-id.webhook-timestamp.body`, the body's
// bytes as they came. One signature that was made with one of the secrets is enough, and comparing takes the same time
// whatever it finds.
func Verify(secrets [][]byte, header http.Header, body []byte, now time.Time) error {
	key, timestamp, given := only(header, "Webhook-Id"), only(header, "Webhook-Timestamp"), only(header, "Webhook-Signature")
	if key == "" || given == "" || !isNumber(timestamp, 12) {
		return Unsigned
	}
	at, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return Unsigned
	}
	if apart := now.Unix() - at; apart > int64(Tolerance.Seconds()) || -apart > int64(Tolerance.Seconds()) {
		return Expired
	}
	matches := 0
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(key + "." + timestamp + "."))
		mac.Write(body)
		wanted := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		for _, signature := range strings.Split(given, " ") {
			if hmac.Equal([]byte(signature), wanted) {
				matches++
			}
		}
	}
	if matches == 0 {
		return Wrong
	}
	return nil
}

// only returns the value of a header that came once and can be printed, or nothing.
func only(header http.Header, name string) string {
	values := header.Values(name)
	if len(values) != 1 || !isPrintable(values[0]) {
		return ""
	}
	return values[0]
}

func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(one rune) bool { return one < ' ' || one > '~' })
}

// isNumber is true of ASCII digits alone: no sign, no space.
func isNumber(text string, longest int) bool {
	return text != "" && len(text) <= longest && strings.Trim(text, "0123456789") == ""
}
