// What an application does with pgx: every way of executing a query, batches, a pool, CopyFrom, LISTEN, cancelling.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"clients/assert"
)

var background = context.Background()

func main() {
	url := os.Args[1]
	connection := assert.Must(pgx.Connect(background, url))
	modes(connection)
	kinds(connection)
	for _, mode := range allModes {
		config := assert.Must(pgx.ParseConfig(url))
		config.DefaultQueryExecMode = mode
		connection := assert.Must(pgx.ConnectConfig(background, config))
		batches(connection, mode)
		assert.Check(connection.Close(background))
	}
	writes(connection)
	failures(connection)
	copies(connection)
	pipelines(connection.PgConn())
	cancels(connection)
	assert.Check(connection.Close(background))
	pools(url)
}

// Asks often enough that the later answers come from memory, and always expects the same.
func steady(what string, ask func() any) {
	first := ask()
	for range 20 {
		time.Sleep(10 * time.Millisecond)
		assert.Expect(what, ask(), first)
	}
	fmt.Println(what, first)
}

var allModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func label(mode pgx.QueryExecMode) string {
	return strings.ReplaceAll(mode.String(), " ", "_")
}

type film struct {
	Title string
	Genre *string
	Votes int
}

func modes(connection *pgx.Conn) {
	for _, mode := range allModes {
		query := fmt.Sprintf("select title, genre, votes as %s from film where id = $1", label(mode))
		steady(label(mode), func() any {
			rows := assert.Must(connection.Query(background, query, mode, 1))
			got := assert.Must(pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[film]))
			assert.Expect("genre", *got.Genre, "comedy")
			return []any{got.Title, got.Votes, rows.CommandTag().String()}
		})
		steady(label(mode)+", no row", func() any {
			return connection.QueryRow(background, query, mode, 100000).Scan(nil, nil, nil).Error()
		})
	}
	assert.Must(connection.Prepare(background, "by name", "select votes as prepared from film where id = $1"))
	steady("prepared", func() any {
		return assert.Must(pgx.CollectExactlyOneRow(assert.Must(connection.Query(background, "by name", 2)), pgx.RowTo[int]))
	})
	assert.Check(connection.Deallocate(background, "by name"))
	steady("simple, no parameters", func() any {
		rows := assert.Must(connection.Query(background, "select id, votes as plain from film where id < 4 order by id"))
		return assert.Must(pgx.CollectRows(rows, pgx.RowToMap))
	})
}

func kinds(connection *pgx.Conn) {
	for _, formats := range []pgx.QueryResultFormats{{pgx.BinaryFormatCode}, {pgx.TextFormatCode}} {
		steady("kinds", func() any {
			rows := assert.Must(connection.Query(background, "select * from kinds order by id", formats))
			return fmt.Sprint(assert.Must(pgx.CollectRows(rows, pgx.RowToMap)))
		})
	}
	steady("array", func() any {
		query := "select id, votes as of_array from film where id = any($1) order by id"
		return assert.Must(pgx.CollectRows(assert.Must(connection.Query(background, query, []int{1, 2, 3})), pgx.RowToMap))
	})
}

// A batch is one pipeline with one Sync; in simple protocol one Query of many statements.
func batches(connection *pgx.Conn, mode pgx.QueryExecMode) {
	query := fmt.Sprintf("select id, votes as batched_%s from film where id = $1", label(mode))
	steady("batch "+label(mode), func() any {
		batch := &pgx.Batch{}
		for id := range 30 {
			batch.Queue(query, id+1)
		}
		results := connection.SendBatch(background, batch)
		var got []int
		for range 30 {
			var id, votes int
			assert.Check(results.QueryRow().Scan(&id, &votes))
			got = append(got, id, votes)
		}
		assert.Check(results.Close())
		return got
	})
	mixed := &pgx.Batch{}
	mixed.Queue("update film set votes = votes + 1 where id = 100")
	mixed.Queue("select votes as after_update from film where id = $1", 100)
	mixed.Queue("select 1 / $1::int", 0)
	mixed.Queue("update film set votes = 0 where id = 100")
	results := connection.SendBatch(background, mixed)
	assert.Must(results.Exec())
	var votes int
	assert.Check(results.QueryRow().Scan(&votes))
	_, err := results.Exec()
	assert.Expect("code", code(err), "22012")
	fmt.Println("mixed batch", votes, err, code(results.Close()))
	assert.Check(connection.QueryRow(background, "select votes as after_batch from film where id = $1", 100).Scan(&votes))
	assert.Expect("rolled back", votes, 100)
}

func writes(connection *pgx.Conn) {
	votes := func(of interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}) (votes int) {
		assert.Check(of.QueryRow(background, "select votes as own from film where id = $1", 3).Scan(&votes))
		return votes
	}
	for n := range 30 {
		tag := assert.Must(connection.Exec(background, "update film set votes = $1 where id = 3", n))
		assert.Expect("tag", tag.RowsAffected(), int64(1))
		for range 3 {
			assert.Expect("own write", votes(connection), n)
		}
	}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead}
	transaction := assert.Must(connection.BeginTx(background, options))
	assert.Must(transaction.Exec(background, "update film set votes = 1000 where id = 3"))
	nested := assert.Must(transaction.Begin(background))
	_, err := nested.Exec(background, "select nothing from film")
	assert.Expect("code", code(err), "42703")
	assert.Check(nested.Rollback(background))
	assert.Expect("in the transaction", votes(transaction), 1000)
	assert.Check(transaction.Rollback(background))
	assert.Expect("after it", votes(connection), 29)
}

func code(err error) string {
	var failure *pgconn.PgError
	if errors.As(err, &failure) {
		return failure.Code
	}
	return fmt.Sprint(err)
}

func failures(connection *pgx.Conn) {
	for _, mode := range allModes {
		for _, query := range []string{"select nothing from film", "select 1 / 0", "selec", "insert into film values (1)"} {
			_, err := connection.Exec(background, query, mode)
			var failure *pgconn.PgError
			if !errors.As(err, &failure) {
				panic("no error")
			}
			failure.Line = 0 // the server's source
			fmt.Printf("%s: %+v\n", label(mode), *failure)
		}
	}
	// A cached statement whose result type changes.
	query := "select * from role where id = 1"
	assert.Must(pgx.CollectRows(assert.Must(connection.Query(background, query)), pgx.RowToMap))
	assert.Must(connection.Exec(background, "alter table role add column age int default 7"))
	_, err := pgx.CollectRows(assert.Must(connection.Query(background, query)), pgx.RowToMap)
	assert.Expect("changed", code(err), "0A000")
	fmt.Println("changed", assert.Must(pgx.CollectRows(assert.Must(connection.Query(background, query)), pgx.RowToMap)))
	assert.Must(connection.Exec(background, "alter table role drop column age"))
}

func copies(connection *pgx.Conn) {
	rows := pgx.CopyFromSlice(2000, func(i int) ([]any, error) { return []any{i%200 + 1, fmt.Sprint("copied ", i)}, nil })
	copied := assert.Must(connection.CopyFrom(background, pgx.Identifier{"role"}, []string{"film_id", "actor"}, rows))
	assert.Expect("copied", copied, int64(2000))
	var count int
	assert.Check(connection.QueryRow(background, "select count(*) from role where actor like 'copied%'").Scan(&count))
	assert.Expect("count", count, 2000)
	var text strings.Builder
	assert.Must(connection.PgConn().CopyTo(background, &text, "copy (select * from role order by id) to stdout"))
	assert.Expect("lines", strings.Count(text.String(), "\n"), 2500)
	_, err := connection.PgConn().CopyFrom(background, strings.NewReader("x\ty\n"), "copy film (id, title) from stdin")
	assert.Expect("code", code(err), "22P02")
}

// The pipeline mode of the lower level: parts with a Sync of their own, sent before anything is read.
func pipelines(connection *pgconn.PgConn) {
	pipeline := connection.StartPipeline(background)
	query := "select votes as piped from film where id = $1"
	pipeline.SendPrepare("piped", query, nil)
	assert.Check(pipeline.Sync())
	for id := range 20 {
		pipeline.SendQueryPrepared("piped", [][]byte{fmt.Append(nil, id+10)}, nil, nil)
		if id%5 == 4 {
			assert.Check(pipeline.Sync())
		}
	}
	pipeline.SendQueryParams("select 1 / $1::int", [][]byte{[]byte("0")}, nil, nil, nil)
	pipeline.SendQueryPrepared("piped", [][]byte{[]byte("1")}, nil, nil)
	assert.Check(pipeline.Sync())
	pipeline.SendDeallocate("piped")
	assert.Check(pipeline.Sync())
	var seen []string
	for len(seen) == 0 || seen[len(seen)-1] != "<nil>" {
		result, err := pipeline.GetResults()
		switch result := result.(type) {
		case *pgconn.ResultReader:
			read := result.Read()
			seen = append(seen, fmt.Sprintf("%s %s", slices.Concat(read.Rows...), read.CommandTag))
		default:
			seen = append(seen, strings.Trim(fmt.Sprintf("%T %s", result, code(err)), " "))
			if result == nil && err == nil {
				seen = append(seen, "<nil>")
			}
		}
	}
	assert.Check(pipeline.Close())
	fmt.Println("pipeline", strings.Join(seen, "; "))
}

func cancels(connection *pgx.Conn) {
	done := make(chan error)
	go func() {
		_, err := connection.Exec(background, "select pg_sleep(60)")
		done <- err
	}()
	// The server ignores a cancel that comes before its query: asked until it is heard.
	for {
		assert.Check(connection.PgConn().CancelRequest(background))
		select {
		case err := <-done:
			assert.Expect("cancelled", code(err), "57014")
			assert.Check(connection.Ping(background))
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func pools(url string) {
	config := assert.Must(pgxpool.ParseConfig(url + "?pool_max_conns=4"))
	pool := assert.Must(pgxpool.NewWithConfig(background, config))
	steady("pool", func() any {
		got := make(chan int)
		for id := range 20 {
			go func() {
				var votes int
				assert.Check(pool.QueryRow(background, "select votes as pooled from film where id = $1", id+20).Scan(&votes))
				got <- votes
			}()
		}
		sum := 0
		for range 20 {
			sum += <-got
		}
		return sum
	})
	limited, cancel := context.WithTimeout(background, 100*time.Millisecond)
	_, err := pool.Exec(limited, "select pg_sleep(60)")
	cancel()
	assert.Expect("deadline", errors.Is(err, context.DeadlineExceeded), true)
	listener := assert.Must(pool.Acquire(background))
	assert.Must(listener.Exec(background, "listen channel"))
	assert.Must(pool.Exec(background, "select pg_notify('channel', 'hello')"))
	heard := assert.Must(listener.Conn().WaitForNotification(background))
	fmt.Println("notification", heard.Channel, heard.Payload)
	listener.Release()
	pool.Close()
}
