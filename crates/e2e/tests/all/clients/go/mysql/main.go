// What an application does with go-sql-driver/mysql: text and prepared reads, interpolation, transactions, errors.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"

	"clients/assert"
)

func open(options string) *sql.DB {
	u, err := url.Parse(os.Args[1])
	assert.Check(err)
	password, _ := u.User.Password()
	db, err := sql.Open("mysql", fmt.Sprintf("%s:%s@tcp(%s)%s?%s", u.User.Username(), password, u.Host, u.Path, options))
	assert.Check(err)
	db.SetMaxOpenConns(1)
	return db
}

type film struct {
	id    int
	title string
	genre sql.NullString
	votes int
}

func films(rows *sql.Rows, err error) string {
	assert.Check(err)
	defer rows.Close()
	var all []film
	for rows.Next() {
		var f film
		assert.Check(rows.Scan(&f.id, &f.title, &f.genre, &f.votes))
		all = append(all, f)
	}
	assert.Check(rows.Err())
	return fmt.Sprint(all)
}

// Asks often enough that the later answers come from memory, and always expects the same.
func steady(name string, ask func() string) {
	first := ask()
	for range 15 {
		time.Sleep(5 * time.Millisecond)
		if again := ask(); again != first {
			log.Fatalf("%s: %s, then %s", name, first, again)
		}
	}
	fmt.Println(name, first)
}

func main() {
	for _, way := range []string{"", "interpolateParams=true", "parseTime=true&loc=UTC&multiStatements=true"} {
		db := open(way)
		steady("text", func() string {
			return films(db.Query("SELECT id, title, genre, votes AS text FROM film WHERE id < 4 ORDER BY id"))
		})
		steady("parameters", func() string {
			return films(db.Query("SELECT id, title, genre, votes AS parameters FROM film WHERE id = ?", 7))
		})
		prepared, err := db.Prepare("SELECT id, title, genre, votes AS prepared FROM film WHERE id = ? OR title = ?")
		assert.Check(err)
		steady("prepared", func() string { return films(prepared.Query(3, "film 9")) })
		kinds(db)
		writes(db)
		failures(db)
		assert.Check(db.Close())
	}
}

func kinds(db *sql.DB) {
	steady("kinds", func() string {
		var exact, day, at string
		var big int64
		var bytes []byte
		var approx float64
		row := db.QueryRow("SELECT big, exact, approx, CAST(day AS CHAR), CAST(at AS CHAR), bytes FROM kinds WHERE id = 1")
		assert.Check(row.Scan(&big, &exact, &approx, &day, &at, &bytes))
		return fmt.Sprint(big, exact, approx, day, at, bytes)
	})
}

func writes(db *sql.DB) {
	ctx := context.Background()
	result, err := db.Exec("INSERT INTO role (film_id, actor) VALUES (?, ?), (?, ?)", 1, "one", 1, "two")
	assert.Check(err)
	rows, _ := result.RowsAffected()
	id, _ := result.LastInsertId()
	fmt.Println("inserted", rows, id > 0)
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	assert.Check(err)
	var before, after int
	assert.Check(tx.QueryRow("SELECT COUNT(*) FROM role WHERE film_id = 1").Scan(&before))
	_, err = tx.Exec("DELETE FROM role WHERE film_id = 1 AND actor IN ('one', 'two')")
	assert.Check(err)
	assert.Check(tx.QueryRow("SELECT COUNT(*) FROM role WHERE film_id = 1").Scan(&after))
	assert.Check(tx.Commit())
	fmt.Println("deleted", before-after)
	var seen int
	assert.Check(db.QueryRow("SELECT COUNT(*) FROM role WHERE film_id = 1").Scan(&seen))
	fmt.Println("seen", seen == after)
}

func failures(db *sql.DB) {
	for _, text := range []string{"SELECT * FROM nothing", "SELECT nonsense nonsense nonsense", "INSERT INTO film VALUES (1, 'x', NULL, 0)"} {
		_, err := db.Exec(text)
		var failure *mysql.MySQLError
		fmt.Println(errors.As(err, &failure), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := db.ExecContext(ctx, "SELECT SLEEP(5)")
	fmt.Println("given up:", err)
	assert.Check(db.Ping())
}
