// What an application does with lib/pq behind database/sql: prepared and not, COPY, its listener, cancelling.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lib/pq"

	"clients/assert"
)

var background = context.Background()

func main() {
	url := os.Args[1] + "?sslmode=disable"
	database := assert.Must(sql.Open("postgres", url))
	database.SetMaxOpenConns(3)
	reads(database, "")
	binary := assert.Must(sql.Open("postgres", url+"&binary_parameters=yes"))
	reads(binary, "binary_")
	assert.Check(binary.Close())
	concurrent(database)
	writes(database)
	failures(database)
	copies(database)
	cancels(database)
	assert.Check(database.Close())
	listens(url)
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

// All rows of a result, each as a list.
func rows(result *sql.Rows, err error) any {
	assert.Check(err)
	defer result.Close()
	columns := assert.Must(result.Columns())
	all := []any{columns}
	for result.Next() {
		row := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		assert.Check(result.Scan(into...))
		all = append(all, row)
	}
	assert.Check(result.Err())
	return all
}

func reads(database *sql.DB, mode string) {
	steady(mode+"simple", func() any {
		return rows(database.Query("select title, votes as " + mode + "simple from film where id = 1"))
	})
	steady(mode+"parameters", func() any {
		return rows(database.Query("select title, genre, votes as "+mode+"unnamed from film where id = $1", 2))
	})
	prepared := assert.Must(database.Prepare("select title, genre, votes as " + mode + "prepared from film where id = $1"))
	steady(mode+"prepared", func() any { return rows(prepared.Query(3)) })
	assert.Check(prepared.Close())
	steady(mode+"kinds", func() any { return rows(database.Query("select * from kinds order by id")) })
	steady(mode+"one kind", func() any { return rows(database.Query("select * from kinds where id = $1", 1)) })
	steady(mode+"array", func() any {
		query := "select id, votes from film where id = any($1) order by id"
		return rows(database.Query(query, pq.Array([]int{1, 2, 3})))
	})
	err := database.QueryRow("select votes from film where id = $1", 100000).Scan(new(int))
	assert.Expect("no row", err, sql.ErrNoRows)
}

func concurrent(database *sql.DB) {
	steady("pool", func() any {
		got := make(chan int)
		for id := range 20 {
			go func() {
				var votes int
				assert.Check(database.QueryRow("select votes as pooled from film where id = $1", id+20).Scan(&votes))
				got <- votes
			}()
		}
		sum := 0
		for range 20 {
			sum += <-got
		}
		return sum
	})
}

func writes(database *sql.DB) {
	// One connection: what another one wrote is seen within a moment only.
	connection := assert.Must(database.Conn(background))
	defer connection.Close()
	votes := func() (votes int) {
		assert.Check(connection.QueryRowContext(background, "select votes as own from film where id = $1", 3).Scan(&votes))
		return votes
	}
	for n := range 30 {
		result := assert.Must(connection.ExecContext(background, "update film set votes = $1 where id = 3", n))
		assert.Expect("affected", assert.Must(result.RowsAffected()), int64(1))
		for range 3 {
			assert.Expect("own write", votes(), n)
		}
	}
	transaction := assert.Must(connection.BeginTx(background, &sql.TxOptions{Isolation: sql.LevelSerializable}))
	assert.Must(transaction.Exec("update film set votes = 1000 where id = 3"))
	var seen int
	assert.Check(transaction.QueryRow("select votes as own from film where id = $1", 3).Scan(&seen))
	assert.Expect("in the transaction", seen, 1000)
	assert.Check(transaction.Rollback())
	assert.Expect("after it", votes(), 29)
	fmt.Println(rows(connection.QueryContext(background,
		"insert into role (film_id, actor) values ($1, $2) returning *", 1, "new")))
}

func failures(database *sql.DB) {
	for _, query := range []string{"select nothing from film", "select 1 / 0", "selec", "insert into film values (1, 'x')"} {
		_, err := database.Exec(query)
		var failure *pq.Error
		if !errors.As(err, &failure) {
			panic("no error")
		}
		fmt.Println(failure.Severity, failure.Code, failure.Message, failure.Detail, failure.Position,
			failure.Constraint, failure.Routine)
		_, err = database.Exec(query+" /* $1 */", 1)
		fmt.Println(err)
	}
}

func copies(database *sql.DB) {
	transaction := assert.Must(database.Begin())
	statement := assert.Must(transaction.Prepare(pq.CopyIn("role", "film_id", "actor")))
	for i := range 2000 {
		assert.Must(statement.Exec(i%200+1, fmt.Sprint("copied ", i)))
	}
	assert.Must(statement.Exec())
	assert.Check(statement.Close())
	assert.Check(transaction.Commit())
	fmt.Println(rows(database.Query("select count(*) from role where actor like 'copied%'")))
}

func cancels(database *sql.DB) {
	// The server ignores a cancel that comes before its query: long enough for that to be under way.
	limited, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	_, err := database.ExecContext(limited, "select pg_sleep(60)")
	var failure *pq.Error
	assert.Expect("cancelled", errors.As(err, &failure) && failure.Code == "57014" || errors.Is(err, context.DeadlineExceeded), true)
	assert.Check(database.Ping())
}

func listens(url string) {
	listener := pq.NewListener(url, time.Second, time.Second, nil)
	assert.Check(listener.Listen("channel"))
	database := assert.Must(sql.Open("postgres", url))
	assert.Must(database.Exec("select pg_notify('channel', 'hello')"))
	heard := <-listener.Notify
	fmt.Println("notification", heard.Channel, heard.Extra)
	assert.Check(listener.Ping())
	assert.Check(listener.Close())
	assert.Check(database.Close())
}
