package receiver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Table is the SQL of the table of keys.
const Table = `
	create table if not exists processed_events (
		key text primary key,
		digest text not null,
		source text,
		fence bigint,
		received_at timestamptz not null default now());
	create index if not exists processed_events_age on processed_events (received_at);
`

const (
	insertKey = `
		insert into processed_events (key, digest, source, fence) values ($1, $2, nullif($3, ''), $4)
		on conflict (key) do nothing`
	known = `select digest, fence from processed_events where key = $1`
	prune = `
		delete from processed_events
		 where key in (select key from processed_events where received_at < now() - make_interval(secs => $1)
		                order by received_at limit $2)`
	// For this transaction alone: another one, begun after a rollback, does not have the key.
	mark     = `select set_config('lock_timeout', $1, true), set_config('oncebox.key', $2, true)`
	isMarked = `select current_setting('oncebox.key', true) is not distinct from $1`
	// Postgres: lock_timeout ran out.
	lockNotAvailable = "55P03"
)

// Applied is what became of a key. Only after Fresh have the effect. 0 is none of them: there was an error.
type Applied int

const (
	Fresh    Applied = iota + 1 // the key is new
	Repeat                      // the key is known
	Conflict                    // the key is known with other bytes: keep the first
	Stale                       // the key is known from a copy with a higher fence
)

// Answer is what to tell the sender. Cause is whatever went wrong, or was out of the ordinary, for the log.
type Answer struct {
	Status int
	Text   string
	Cause  error
}

// WriteTo writes the answer.
func (answer Answer) WriteTo(response http.ResponseWriter) {
	if answer.Status == http.StatusServiceUnavailable {
		response.Header().Set("Retry-After", "1")
	}
	response.Header().Set("Content-Length", strconv.Itoa(len(answer.Text)))
	response.WriteHeader(answer.Status)
	_, _ = response.Write([]byte(answer.Text))
}

// OtherBody is the cause when the key came with another body than the first one, which is kept. The status is 200.
type OtherBody struct{ Key, Digest string }

func (other OtherBody) Error() string {
	return fmt.Sprintf("the key %s came with another body, of digest %s; the first is kept", other.Key, other.Digest)
}

// LowerFence is the cause when the key came with a lower fence than that of the copy that was processed. The status is 200.
type LowerFence struct {
	Key   string
	Fence int64
}

func (lower LowerFence) Error() string {
	return fmt.Sprintf("the key %s came with fence %d, and was processed with a higher one", lower.Key, lower.Fence)
}

// Another transaction holds the key.
type inProgress struct{ error }

func (held inProgress) Unwrap() error { return held.error }

// The commit failed, perhaps only its answer: the event is processed, or it is not.
type outcomeUnknown struct{ error }

func (unknown outcomeUnknown) Unwrap() error { return unknown.error }

// ApplyOnce inserts the key in the caller's transaction, and commits nothing. A concurrent copy waits here for the
// transaction that holds the key, at most for lock_timeout.
func ApplyOnce(ctx context.Context, tx *sql.Tx, event Event) (Applied, error) {
	inserted, err := insert(ctx, tx, event)
	if err != nil {
		return 0, err
	}
	if inserted {
		return Fresh, nil
	}
	var digest string
	var fence sql.NullInt64
	err = tx.QueryRowContext(ctx, known, event.Key).Scan(&digest, &fence)
	isOlder := event.Fence.Valid && fence.Valid && event.Fence.Int64 < fence.Int64
	switch {
	case errors.Is(err, sql.ErrNoRows):
		// Pruned since the insert: it was processed, with bytes that nobody knows any more.
		return Repeat, nil
	case err != nil:
		return 0, err
	case digest != event.Digest:
		return Conflict, nil
	case isOlder:
		return Stale, nil
	}
	return Repeat, nil
}

func insert(ctx context.Context, tx *sql.Tx, event Event) (bool, error) {
	result, err := tx.ExecContext(ctx, insertKey, event.Key, event.Digest, event.Source, event.Fence)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows == 1, err
}

// Prune forgets the oldest keys, at most so many, and returns how many they were. `db` is a *sql.DB or *sql.Tx.
func Prune(ctx context.Context, db interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, olderThan time.Duration, atMost int) (int64, error) {
	result, err := db.ExecContext(ctx, prune, olderThan.Seconds(), atMost)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Once has effects once. The zero values of all but DB are good.
type Once struct {
	DB          *sql.DB
	LockTimeout time.Duration // 0: two seconds
}

// Process runs the effect at most once per key that is committed, in the transaction of the key.
func (once Once) Process(ctx context.Context, event Event, effect func(context.Context, *sql.Tx) error) Answer {
	timeout := once.LockTimeout
	if timeout == 0 {
		timeout = 2 * time.Second
	}
	var applied Applied
	err := once.inTransaction(ctx, event.Key, timeout, func(tx *sql.Tx) (err error) {
		applied, err = ApplyOnce(ctx, tx, event)
		if err != nil || applied != Fresh {
			return held(err)
		}
		if err := effect(ctx, tx); err != nil {
			return err
		}
		return commit(ctx, tx, event.Key)
	})
	if err != nil {
		return answerTo(err)
	}
	return answerOf(event, applied)
}

// The event is processed in each of these cases, by this copy or another, so that the sender need not come again.
func answerOf(event Event, applied Applied) Answer {
	switch applied {
	case Conflict:
		cause := OtherBody{event.Key, event.Digest}
		return Answer{http.StatusOK, "seen before with other bytes; the first are kept\n", cause}
	case Stale:
		cause := LowerFence{event.Key, event.Fence.Int64}
		return Answer{http.StatusOK, "seen before; a newer attempt was processed\n", cause}
	case Repeat:
		return Answer{http.StatusOK, "seen before\n", nil}
	}
	return Answer{http.StatusOK, "processed\n", nil}
}

// Lookup is for endpoint.lookup. It asks the unique index, which also knows the keys of transactions under way.
func (once Once) Lookup(ctx context.Context, key string) Answer {
	var inserted bool
	err := once.inTransaction(ctx, key, 100*time.Millisecond, func(tx *sql.Tx) (err error) {
		inserted, err = insert(ctx, tx, Event{Key: key})
		return held(err)
	})
	switch {
	case err != nil:
		return answerTo(err)
	case inserted:
		return Answer{Status: http.StatusNotFound, Text: "not processed\n"}
	}
	return Answer{Status: http.StatusOK, Text: "processed\n"}
}

// What `act` leaves uncommitted is rolled back.
func (once Once) inTransaction(
	ctx context.Context, key string, lockTimeout time.Duration, act func(*sql.Tx) error,
) error {
	tx, err := once.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	// After a commit this does nothing.
	defer func() { _ = tx.Rollback() }()
	milliseconds := strconv.FormatInt(lockTimeout.Milliseconds(), 10)
	if _, err := tx.ExecContext(ctx, mark, milliseconds, key); err != nil {
		return err
	}
	return act(tx)
}

// The error of inserting a key: an effect that waits too long is no copy under way.
func held(err error) error {
	var state interface{ SQLState() string }
	if errors.As(err, &state) && state.SQLState() == lockNotAvailable {
		return inProgress{err}
	}
	return err
}

func commit(ctx context.Context, tx *sql.Tx, key string) error {
	// Postgres answers the commit of a failed transaction without an error, and rolls back. In one this fails. One that
	// works may have been begun after the transaction of the key was rolled back.
	var marked bool
	if err := tx.QueryRowContext(ctx, isMarked, key).Scan(&marked); err != nil {
		return err
	}
	if !marked {
		return errors.New("the effect ended the transaction, and did not say so")
	}
	if err := tx.Commit(); err != nil {
		return outcomeUnknown{err}
	}
	return nil
}

func answerTo(err error) Answer {
	var busy inProgress
	var unknown outcomeUnknown
	switch {
	case errors.As(err, &unknown):
		return Answer{http.StatusInternalServerError, "perhaps processed\n", err}
	case errors.As(err, &busy):
		return Answer{http.StatusConflict, "this key is being processed\n", err}
	}
	return Answer{http.StatusServiceUnavailable, "not processed\n", err}
}
