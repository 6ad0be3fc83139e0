package receiver

import (
	"context"
	"database/sql"
	"errors"
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
	setLockTimeout = `select set_config('lock_timeout', $1, true)`
	// Postgres: lock_timeout ran out.
	lockNotAvailable = "55P03"
)

// Applied is what became of a key. Only after Fresh have the effect.
type Applied int

const (
	Fresh    Applied = iota // the key is new
	Repeat                  // the key is known
	Conflict                // the key is known with other bytes: keep the first
	Stale                   // the key is known from an attempt with a higher fence
)

// Fences says what to do about a copy whose fence is lower than that of the copy that was processed.
type Fences int

const (
	IgnoreFences     Fences = iota
	RefuseLowerFence        // tell Stale apart
)

// Answer is what to tell the sender. Cause is for the log.
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

var answers = map[Applied]Answer{
	Fresh:    {Status: http.StatusOK, Text: "processed\n"},
	Repeat:   {Status: http.StatusOK, Text: "seen before\n"},
	Conflict: {Status: http.StatusOK, Text: "seen before with other bytes; the first are kept\n"},
	Stale:    {Status: http.StatusConflict, Text: "a newer attempt was processed\n"},
}

// The commit failed, perhaps only its answer: the event is processed, or it is not.
type outcomeUnknown struct{ error }

func (unknown outcomeUnknown) Unwrap() error { return unknown.error }

// ApplyOnce inserts the key in the caller's transaction, and commits nothing. A concurrent copy waits here for the
// transaction that holds the key, at most for lock_timeout.
func ApplyOnce(ctx context.Context, tx *sql.Tx, event Event, fences Fences) (Applied, error) {
	inserted, err := insert(ctx, tx, event)
	if err != nil || inserted {
		return Fresh, err
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
		return Repeat, err
	case fences == RefuseLowerFence && isOlder:
		return Stale, nil
	case digest != event.Digest:
		return Conflict, nil
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
	Fences      Fences
}

// Process runs the effect at most once per key that is committed, in the transaction of the key.
func (once Once) Process(ctx context.Context, event Event, effect func(context.Context, *sql.Tx) error) Answer {
	timeout := once.LockTimeout
	if timeout == 0 {
		timeout = 2 * time.Second
	}
	var applied Applied
	err := once.inTransaction(ctx, timeout, func(tx *sql.Tx) (err error) {
		applied, err = ApplyOnce(ctx, tx, event, once.Fences)
		if err != nil || applied != Fresh {
			return err
		}
		if err := effect(ctx, tx); err != nil {
			return err
		}
		return commit(ctx, tx)
	})
	if err != nil {
		return answerTo(err)
	}
	return answers[applied]
}

// Lookup is for endpoint.lookup. It asks the unique index, which also knows the keys of transactions under way.
func (once Once) Lookup(ctx context.Context, key string) Answer {
	var inserted bool
	err := once.inTransaction(ctx, 100*time.Millisecond, func(tx *sql.Tx) (err error) {
		inserted, err = insert(ctx, tx, Event{Key: key})
		return err
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
func (once Once) inTransaction(ctx context.Context, lockTimeout time.Duration, act func(*sql.Tx) error) error {
	tx, err := once.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	// After a commit this does nothing.
	defer func() { _ = tx.Rollback() }()
	milliseconds := strconv.FormatInt(lockTimeout.Milliseconds(), 10)
	if _, err := tx.ExecContext(ctx, setLockTimeout, milliseconds); err != nil {
		return err
	}
	return act(tx)
}

func commit(ctx context.Context, tx *sql.Tx) error {
	// Postgres answers the commit of a failed transaction without an error, and rolls back. In one it fails here.
	if _, err := tx.ExecContext(ctx, "select 1"); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return outcomeUnknown{err}
	}
	return nil
}

func answerTo(err error) Answer {
	var state interface{ SQLState() string }
	var unknown outcomeUnknown
	switch {
	case errors.As(err, &unknown):
		return Answer{http.StatusInternalServerError, "perhaps processed\n", err}
	case errors.As(err, &state) && state.SQLState() == lockNotAvailable:
		return Answer{http.StatusConflict, "this key is being processed\n", err}
	}
	return Answer{http.StatusServiceUnavailable, "not processed\n", err}
}
