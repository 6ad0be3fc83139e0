package receiver

import (
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

const longestKey = 255

// A structured-field string (RFC 8941, 3.3.3): printable ASCII in quotes, a backslash before quote and backslash.
var quoted = regexp.MustCompile(`^ *"((?:[ !#-\[\]-~]|\\["\\])*)" *$`)
var unescape = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// Refused is an error of Read: a request whose key can be read in two ways is refused, never guessed at.
type Refused string

const (
	NoKey         Refused = "noKey"
	BadKey        Refused = "badKey"
	KeysDiffer    Refused = "keysDiffer"
	BadNumber     Refused = "badNumber"
	DigestDiffers Refused = "digestDiffers"
)

func (reason Refused) Error() string { return "the request is refused: " + string(reason) }

// Status is what to answer. Bytes that were damaged on the way may come whole the next time; the others will not change.
func (reason Refused) Status() int {
	if reason == DigestDiffers {
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// Event is what the headers say of an event. What they do not say is empty.
type Event struct {
	Key     string
	Digest  string // of the body as it came, in the form of content-digest
	Event   string
	Attempt int32
	Fence   sql.NullInt64
	Source  string // topic/partition/offset
}

// Read takes the key from webhook-id, from Idempotency-Key, or from both when they say the same.
func Read(header http.Header, body []byte) (Event, error) {
	plain, err := plainKey(header.Values("Webhook-Id"))
	if err != nil {
		return Event{}, err
	}
	other, err := quotedKey(header.Values("Idempotency-Key"))
	switch {
	case err != nil:
		return Event{}, err
	case plain == "":
		plain = other
	case other != "" && other != plain:
		return Event{}, KeysDiffer
	}
	return eventOf(plain, header, body)
}

// ReadSigned is for after Verify: it takes the key from webhook-id alone, since the signature does not cover the other header.
func ReadSigned(header http.Header, body []byte) (Event, error) {
	key, err := plainKey(header.Values("Webhook-Id"))
	if err != nil {
		return Event{}, err
	}
	return eventOf(key, header, body)
}

// DigestOf returns the SHA-256 of a body in the form of content-digest.
func DigestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

func eventOf(key string, header http.Header, body []byte) (Event, error) {
	if key == "" {
		return Event{}, NoKey
	}
	attempt, err := number(header.Values("Oncebox-Attempt"), math.MaxInt32)
	if err != nil || (attempt.Valid && attempt.Int64 == 0) {
		return Event{}, BadNumber
	}
	fence, err := number(header.Values("Oncebox-Fence"), math.MaxInt64)
	if err != nil {
		return Event{}, err
	}
	digest := DigestOf(body)
	for _, part := range strings.Split(strings.Join(header.Values("Content-Digest"), ","), ",") {
		if part = strings.TrimSpace(part); strings.HasPrefix(part, "sha-256=") && part != digest {
			return Event{}, DigestDiffers
		}
	}
	return Event{
		Key:     key,
		Digest:  digest,
		Event:   strings.Join(header.Values("Oncebox-Event"), ", "),
		Attempt: int32(attempt.Int64),
		Fence:   fence,
		Source:  strings.Join(header.Values("Oncebox-Source"), ", "),
	}, nil
}

// The key, or nothing when there is no such header.
func plainKey(values []string) (string, error) {
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(values) > 1 || key == "" || len(key) > longestKey || !isPrintable(key) {
		return "", BadKey
	}
	return key, nil
}

func quotedKey(values []string) (string, error) {
	if len(values) == 0 {
		return "", nil
	}
	found := quoted.FindStringSubmatch(values[0])
	if len(values) > 1 || found == nil {
		return "", BadKey
	}
	return plainKey([]string{unescape.Replace(found[1])})
}

func number(values []string, largest int64) (sql.NullInt64, error) {
	if len(values) == 0 {
		return sql.NullInt64{}, nil
	}
	if len(values) > 1 || !isNumber(values[0], 19) {
		return sql.NullInt64{}, BadNumber
	}
	found, err := strconv.ParseInt(values[0], 10, 64)
	if err != nil || found > largest {
		return sql.NullInt64{}, BadNumber
	}
	return sql.NullInt64{Int64: found, Valid: true}, nil
}
