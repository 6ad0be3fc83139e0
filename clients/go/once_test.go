package receiver

// Keys and effects on a real PostgreSQL, each test in a schema of its own; skipped without DATABASE_URL.

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	copies = 16
	day    = 24 * time.Hour
)

type books struct {
	*testing.T
	db   *sql.DB
	once Once
}

func open(t *testing.T) books {
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		t.Skip("no DATABASE_URL")
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, 6)
	_, _ = rand.Read(random)
	schema := "clients_go_" + hex.EncodeToString(random)
	config.RuntimeParams["search_path"] = schema
	db := stdlib.OpenDB(*config)
	books := books{t, db, Once{DB: db}}
	t.Cleanup(func() {
		books.execute("drop schema " + schema + " cascade")
		_ = db.Close()
	})
	books.execute("create schema " + schema)
	books.execute(Table)
	books.execute("create table effects (key text)")
	return books
}

func (books books) execute(text string, arguments ...any) {
	books.Helper()
	if _, err := books.db.Exec(text, arguments...); err != nil {
		books.Fatal(err)
	}
}

func (books books) begin() *sql.Tx {
	tx, err := books.db.Begin()
	if err != nil {
		books.Fatal(err)
	}
	books.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (books books) strings(query string) []string {
	rows, err := books.db.Query(query)
	if err != nil {
		books.Fatal(err)
	}
	defer rows.Close()
	found := []string{}
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			books.Fatal(err)
		}
		found = append(found, one)
	}
	return found
}

func (books books) effects() []string { return books.strings("select key from effects order by key") }

func (books books) process(event Event) Answer {
	return books.once.Process(context.Background(), event, effectOf(event.Key))
}

func (books books) lookup(key string) int { return books.once.Lookup(context.Background(), key).Status }

func (books books) applies(tx *sql.Tx, event Event, expected Applied) {
	books.Helper()
	applied, err := ApplyOnce(context.Background(), tx, event)
	same(books.T, err, nil)
	same(books.T, applied, expected)
}

func same(t *testing.T, found, expected any) {
	t.Helper()
	if !reflect.DeepEqual(found, expected) {
		t.Errorf("%v, not %v", found, expected)
	}
}

func event(key, body string) Event {
	return Event{Key: key, Digest: DigestOf([]byte(body)), Source: "credits/1/42"}
}

func fenced(fence int64) Event {
	event := event("one", "{}")
	event.Fence = sql.NullInt64{Int64: fence, Valid: true}
	return event
}

func effectOf(key string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "insert into effects values ($1)", key)
		return err
	}
}

func TestCopiesAtTheSameTimeHaveOneEffect(t *testing.T) {
	books := open(t)
	answers := make(chan Answer)
	for range copies {
		go func() { answers <- books.process(event("one", "{}")) }()
	}
	count := map[Answer]int{}
	for range copies {
		count[<-answers]++
	}
	same(t, count, map[Answer]int{{200, "processed\n", nil}: 1, {200, "seen before\n", nil}: copies - 1})
	same(t, books.effects(), []string{"one"})
}

func TestARepeatAfterARollbackHasTheEffect(t *testing.T) {
	books := open(t)
	answer := books.once.Process(context.Background(), event("one", "{}"), func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(effectOf("one")(ctx, tx), errors.New("no"))
	})
	same(t, answer.Status, 503)
	same(t, books.effects(), []string{})
	same(t, books.lookup("one"), 404)
	same(t, books.process(event("one", "{}")).Text, "processed\n")
	same(t, books.process(event("one", "{}")).Text, "seen before\n")
	same(t, books.effects(), []string{"one"})
	same(t, books.lookup("one"), 200)
}

func TestOtherBytesUnderTheSameKeyAreToldApartAndHaveNoEffect(t *testing.T) {
	books := open(t)
	same(t, books.process(event("one", "{}")).Cause, nil)
	other := event("one", `["secret"]`)
	cause := OtherBody{"one", other.Digest}
	same(t, books.process(other), Answer{200, "seen before with other bytes; the first are kept\n", cause})
	told := "the key one came with another body, of digest " + other.Digest + "; the first is kept"
	same(t, cause.Error(), told)
	same(t, books.effects(), []string{"one"})
}

func TestAWordBeforeTheKeyKeepsTwoSendersApart(t *testing.T) {
	books := open(t)
	for _, sender := range []string{"orders:", "stock:"} {
		event := event("one", "{}")
		event.Key = sender + event.Key
		same(t, books.process(event).Text, "processed\n")
	}
	same(t, books.effects(), []string{"orders:one", "stock:one"})
	same(t, books.lookup("orders:one"), 200)
	same(t, books.lookup("one"), 404)
}

func TestTheCallerCommits(t *testing.T) {
	books := open(t)
	tx := books.begin()
	books.applies(tx, event("one", "{}"), Fresh)
	books.applies(tx, event("one", "{}"), Repeat)
	books.applies(tx, event("one", "[]"), Conflict)
	_ = tx.Rollback()
	books.applies(books.begin(), event("one", "{}"), Fresh)
}

func TestWhatIsNotKnownIsNull(t *testing.T) {
	books := open(t)
	books.process(Event{Key: "one"})
	same(t, books.strings("select key from processed_events where source is null and fence is null"), []string{"one"})
}

func TestALowerFenceIsToldApartAndAnsweredAsProcessed(t *testing.T) {
	books := open(t)
	books.process(fenced(7))
	tx := books.begin()
	books.applies(tx, fenced(6), Stale)
	books.applies(tx, fenced(7), Repeat)
	books.applies(tx, fenced(8), Repeat)
	books.applies(tx, event("one", "{}"), Repeat)
	other := fenced(6)
	other.Digest = DigestOf([]byte("[]"))
	books.applies(tx, other, Conflict)
	answer := Answer{200, "seen before; a newer attempt was processed\n", LowerFence{"one", 6}}
	same(t, books.process(fenced(6)), answer)
	same(t, answer.Cause.Error(), "the key one came with fence 6, and was processed with a higher one")
	same(t, books.effects(), []string{"one"})
}

func TestAKeyThatIsHeldIsBusy(t *testing.T) {
	books := open(t)
	books.once.LockTimeout = 200 * time.Millisecond
	tx := books.begin()
	books.applies(tx, event("one", "{}"), Fresh)
	same(t, books.process(event("one", "{}")).Status, 409)
	same(t, books.lookup("one"), 409)
	_ = tx.Rollback()
	same(t, books.lookup("one"), 404)
}

func TestACommitThatFailsIsInDoubt(t *testing.T) {
	books := open(t)
	books.execute("alter table effects add constraint once unique (key) deferrable initially deferred")
	books.execute("insert into effects values ('one')")
	same(t, books.process(event("one", "{}")).Status, 500)
	same(t, books.lookup("one"), 404)
}

func TestAnEffectThatHidesItsFailureIsNotProcessed(t *testing.T) {
	books := open(t)
	answer := books.once.Process(context.Background(), event("one", "{}"), func(ctx context.Context, tx *sql.Tx) error {
		_, _ = tx.ExecContext(ctx, "select 1 / 0")
		return nil
	})
	same(t, answer.Status, 503)
	same(t, books.lookup("one"), 404)
}

func TestAnEffectThatRollsBackByItselfIsNotProcessed(t *testing.T) {
	books := open(t)
	effect := effectOf("one")
	for _, rollsBack := range []func(context.Context, *sql.Tx) error{
		func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, "select 1 / 0")
			_, err := tx.ExecContext(ctx, "rollback")
			return err
		},
		func(ctx context.Context, tx *sql.Tx) error { return tx.Rollback() },
		func(ctx context.Context, tx *sql.Tx) error {
			first := effect(ctx, tx)
			_, rollback := tx.ExecContext(ctx, "rollback")
			_, begin := tx.ExecContext(ctx, "begin")
			return errors.Join(first, rollback, begin, effect(ctx, tx))
		},
	} {
		answer := books.once.Process(context.Background(), event("one", "{}"), rollsBack)
		same(t, answer.Status, 503)
		same(t, books.effects(), []string{})
		same(t, books.lookup("one"), 404)
	}
}

func TestAnEffectMayRollBackToASavepoint(t *testing.T) {
	books := open(t)
	answer := books.once.Process(context.Background(), event("one", "{}"), func(ctx context.Context, tx *sql.Tx) error {
		_, savepoint := tx.ExecContext(ctx, "savepoint here")
		_, _ = tx.ExecContext(ctx, "select 1 / 0")
		_, rollback := tx.ExecContext(ctx, "rollback to savepoint here")
		return errors.Join(savepoint, rollback, effectOf("one")(ctx, tx))
	})
	same(t, answer, Answer{200, "processed\n", nil})
	same(t, books.effects(), []string{"one"})
	same(t, books.lookup("one"), 200)
}

func TestAnEffectThatWaitsTooLongIsNotBusy(t *testing.T) {
	books := open(t)
	books.once.LockTimeout = 200 * time.Millisecond
	tx := books.begin()
	_, err := tx.Exec("lock table effects")
	same(t, err, nil)
	same(t, books.process(event("one", "{}")).Status, 503)
	_ = tx.Rollback()
	same(t, books.lookup("one"), 404)
}

func TestAnErrorIsNotFresh(t *testing.T) {
	books := open(t)
	tx := books.begin()
	_ = tx.Rollback()
	applied, err := ApplyOnce(context.Background(), tx, event("one", "{}"))
	same(t, errors.Is(err, sql.ErrTxDone), true)
	same(t, applied, Applied(0))
}

func TestADatabaseThatIsAwayIsNotProcessed(t *testing.T) {
	db, _ := sql.Open("pgx", "postgresql://127.0.0.1:1/none")
	defer db.Close()
	same(t, Once{DB: db}.Process(context.Background(), event("one", "{}"), effectOf("one")).Status, 503)
}

func TestOldKeysArePrunedAFewAtATime(t *testing.T) {
	books := open(t)
	for key, days := range map[string]int{"oldest": 40, "older": 35, "old": 31, "young": 29} {
		insert := "insert into processed_events values ($1, '', null, null, now() - make_interval(days => $2))"
		books.execute(insert, key, days)
	}
	pruned, err := Prune(context.Background(), books.db, 30*day, 2)
	same(t, err, nil)
	same(t, pruned, int64(2))
	same(t, books.strings("select key from processed_events order by key"), []string{"old", "young"})
	pruned, _ = Prune(context.Background(), books.db, 30*day, 1000)
	same(t, pruned, int64(1))
}
