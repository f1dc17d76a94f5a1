// What an application does with lib/pq behind database/sql: prepared and not, COPY, its listener, cancelling.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/lib/pq"
)

var background = context.Background()

func main() {
	url := os.Args[1] + "?sslmode=disable"
	database := must(sql.Open("postgres", url))
	database.SetMaxOpenConns(3)
	reads(database, "")
	binary := must(sql.Open("postgres", url+"&binary_parameters=yes"))
	reads(binary, "binary_")
	check(binary.Close())
	concurrent(database)
	writes(database)
	failures(database)
	copies(database)
	cancels(database)
	check(database.Close())
	listens(url)
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(what string, got, expected any) {
	if !reflect.DeepEqual(got, expected) {
		panic(fmt.Sprintf("%s: %v, not %v", what, got, expected))
	}
}

// Asks often enough that the later answers come from memory, and always expects the same.
func steady(what string, ask func() any) {
	first := ask()
	for range 20 {
		time.Sleep(10 * time.Millisecond)
		expect(what, ask(), first)
	}
	fmt.Println(what, first)
}

// All rows of a result, each as a list.
func rows(result *sql.Rows, err error) any {
	check(err)
	defer result.Close()
	columns := must(result.Columns())
	all := []any{columns}
	for result.Next() {
		row := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		check(result.Scan(into...))
		all = append(all, row)
	}
	check(result.Err())
	return all
}

func reads(database *sql.DB, mode string) {
	steady(mode+"simple", func() any {
		return rows(database.Query("select title, votes as " + mode + "simple from film where id = 1"))
	})
	steady(mode+"parameters", func() any {
		return rows(database.Query("select title, genre, votes as "+mode+"unnamed from film where id = $1", 2))
	})
	prepared := must(database.Prepare("select title, genre, votes as " + mode + "prepared from film where id = $1"))
	steady(mode+"prepared", func() any { return rows(prepared.Query(3)) })
	check(prepared.Close())
	steady(mode+"kinds", func() any { return rows(database.Query("select * from kinds order by id")) })
	steady(mode+"one kind", func() any { return rows(database.Query("select * from kinds where id = $1", 1)) })
	steady(mode+"array", func() any {
		query := "select id, votes from film where id = any($1) order by id"
		return rows(database.Query(query, pq.Array([]int{1, 2, 3})))
	})
	err := database.QueryRow("select votes from film where id = $1", 100000).Scan(new(int))
	expect("no row", err, sql.ErrNoRows)
}

func concurrent(database *sql.DB) {
	steady("pool", func() any {
		got := make(chan int)
		for id := range 20 {
			go func() {
				var votes int
				check(database.QueryRow("select votes as pooled from film where id = $1", id+20).Scan(&votes))
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
	connection := must(database.Conn(background))
	defer connection.Close()
	votes := func() (votes int) {
		check(connection.QueryRowContext(background, "select votes as own from film where id = $1", 3).Scan(&votes))
		return votes
	}
	for n := range 30 {
		result := must(connection.ExecContext(background, "update film set votes = $1 where id = 3", n))
		expect("affected", must(result.RowsAffected()), int64(1))
		for range 3 {
			expect("own write", votes(), n)
		}
	}
	transaction := must(connection.BeginTx(background, &sql.TxOptions{Isolation: sql.LevelSerializable}))
	must(transaction.Exec("update film set votes = 1000 where id = 3"))
	var seen int
	check(transaction.QueryRow("select votes as own from film where id = $1", 3).Scan(&seen))
	expect("in the transaction", seen, 1000)
	check(transaction.Rollback())
	expect("after it", votes(), 29)
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
	transaction := must(database.Begin())
	statement := must(transaction.Prepare(pq.CopyIn("role", "film_id", "actor")))
	for i := range 2000 {
		must(statement.Exec(i%200+1, fmt.Sprint("copied ", i)))
	}
	must(statement.Exec())
	check(statement.Close())
	check(transaction.Commit())
	fmt.Println(rows(database.Query("select count(*) from role where actor like 'copied%'")))
}

func cancels(database *sql.DB) {
	// The server ignores a cancel that comes before its query: long enough for that to be under way.
	limited, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	_, err := database.ExecContext(limited, "select pg_sleep(60)")
	var failure *pq.Error
	expect("cancelled", errors.As(err, &failure) && failure.Code == "57014" || errors.Is(err, context.DeadlineExceeded), true)
	check(database.Ping())
}

func listens(url string) {
	listener := pq.NewListener(url, time.Second, time.Second, nil)
	check(listener.Listen("channel"))
	database := must(sql.Open("postgres", url))
	must(database.Exec("select pg_notify('channel', 'hello')"))
	heard := <-listener.Notify
	fmt.Println("notification", heard.Channel, heard.Extra)
	check(listener.Ping())
	check(listener.Close())
	check(database.Close())
}
