// A receiver on the kit, net/http and pgx; it behaves as those of docs/receivers do.
//
// Enters: POST /events, one copy of an event. Leaves: 2xx after the key and the effect were committed together.
// The effect: an account's balance grows by the event's amount. GET /events/{key} says whether that has happened.
//
// Environment: DATABASE_URL, LISTEN (127.0.0.1:8082), WEBHOOK_SECRET (one or more, separated by spaces; none: no check).
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"oncebox.dev/receiver"
)

const (
	largestBody = 8 << 20
	// A pooled connection, locks and statements together: below the 15 s of endpoint.timeout.
	longest  = 10 * time.Second
	accounts = `create table if not exists accounts (name text primary key, balance bigint not null)`
	credit   = `
		insert into accounts (name, balance) values ($1, $2)
		on conflict (name) do update set balance = accounts.balance + excluded.balance`
)

type server struct {
	once    receiver.Once
	secrets [][]byte
}

func (server server) receive(ctx context.Context, header http.Header, body []byte) receiver.Answer {
	if len(server.secrets) > 0 {
		if err := receiver.Verify(server.secrets, header, body, time.Now()); err != nil {
			return receiver.Answer{Status: http.StatusUnauthorized, Text: "the signature is not good\n"}
		}
	}
	event, err := receiver.ReadSigned(header, body)
	if err != nil {
		return refusal(err)
	}
	account, amount, ok := creditIn(body)
	if !ok {
		return receiver.Answer{Status: http.StatusUnprocessableEntity, Text: "no data with account and amount\n"}
	}
	return server.once.Process(ctx, event, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, credit, account, amount)
		return err
	})
}

func refusal(err error) receiver.Answer {
	var refused receiver.Refused
	if !errors.As(err, &refused) || refused == receiver.NoKey {
		return receiver.Answer{Status: http.StatusBadRequest, Text: "no webhook-id\n"}
	}
	return receiver.Answer{Status: refused.Status(), Text: refused.Error() + "\n"}
}

// The account and the amount. Maps and pointers, since names in a struct are matched without regard to case, and null
// would pass for an empty name.
func creditIn(body []byte) (string, int64, bool) {
	var event, data map[string]json.RawMessage
	var account *string
	var amount *int64
	err := errors.Join(json.Unmarshal(body, &event), json.Unmarshal(event["data"], &data),
		json.Unmarshal(data["account"], &account), json.Unmarshal(data["amount"], &amount))
	if err != nil || account == nil || amount == nil {
		return "", 0, false
	}
	// JSON can hold what Postgres cannot: the character 0; and what is no text becomes U+FFFD here.
	isStorable := !strings.ContainsAny(*account, "\x00\uFFFD")
	return *account, *amount, isStorable && -1<<53 < *amount && *amount < 1<<53
}

func (server server) post(response http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, largestBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		receiver.Answer{Status: http.StatusRequestEntityTooLarge}.WriteTo(response)
		return
	case err != nil:
		write(response, receiver.Answer{Status: http.StatusServiceUnavailable, Text: "not processed\n", Cause: err})
		return
	}
	ctx, cancel := context.WithTimeout(request.Context(), longest)
	defer cancel()
	write(response, server.receive(ctx, request.Header, body))
}

func (server server) get(response http.ResponseWriter, request *http.Request) {
	ctx, cancel := context.WithTimeout(request.Context(), longest)
	defer cancel()
	write(response, server.once.Lookup(ctx, request.PathValue("key")))
}

func write(response http.ResponseWriter, answer receiver.Answer) {
	if answer.Cause != nil && answer.Status != http.StatusConflict {
		log.Print(answer.Status, ": ", answer.Cause)
	}
	answer.WriteTo(response)
}

func secretsIn(text string) ([][]byte, error) {
	fields := strings.Fields(text)
	if text != "" && len(fields) == 0 {
		return nil, errors.New("WEBHOOK_SECRET is blank: a secret, or nothing at all for no check")
	}
	var secrets [][]byte
	for _, field := range fields {
		secret, err := receiver.SecretIn(field)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

func run() error {
	secrets, err := secretsIn(os.Getenv("WEBHOOK_SECRET"))
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	if _, err := db.Exec(receiver.Table + accounts); err != nil {
		return err
	}
	server := server{once: receiver.Once{DB: db}, secrets: secrets}
	address := os.Getenv("LISTEN")
	if address == "" {
		address = "127.0.0.1:8082"
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	routes := http.NewServeMux()
	routes.HandleFunc("POST /events", server.post)
	routes.HandleFunc("GET /events/{key}", server.get)
	routes.HandleFunc("/", http.NotFound)
	return http.Serve(listener, routes)
}

func main() { log.Fatal(run()) }
