// Reads PgBouncer's console as collectors do: with pq as pgbouncer_exporter, with pgx (prepared statements) as Telegraf.
// Prints what is the same in every run.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	_ "github.com/lib/pq"

	"clients/assert"
)

func main() {
	url := os.Args[1]
	exporter(url)
	telegraf(url)
}

// The exporter counts the columns of SHOW CONFIG, and wants numbers in these columns of the others.
func exporter(url string) {
	db := assert.Must(sql.Open("postgres", url))
	defer db.Close()
	db.SetMaxOpenConns(1)
	var version string
	assert.Check(db.QueryRow("SHOW VERSION;").Scan(&version))
	fmt.Println("version", version[:len("PgBouncer 1.25.")])
	numbers := map[string][]string{
		"databases":    {"pool_size", "reserve_pool_size", "max_connections", "current_connections", "paused", "disabled"},
		"stats_totals": {"query_count", "query_time", "bytes_received", "bytes_sent", "wait_time", "xact_count", "xact_time", "client_parse_count", "server_parse_count", "bind_count", "server_assignment_count"},
		"pools":        {"cl_active", "cl_waiting", "cl_active_cancel_req", "cl_waiting_cancel_req", "sv_active", "sv_active_cancel", "sv_being_canceled", "sv_idle", "sv_used", "sv_tested", "sv_login", "maxwait"},
		"lists":        {"items"},
	}
	for _, show := range []string{"lists", "config", "databases", "stats_totals", "pools"} {
		rows := assert.Must(db.Query("SHOW " + show + ";"))
		names := assert.Must(rows.Columns())
		if show == "config" && len(names) != 4 {
			panic(fmt.Sprint("columns of SHOW CONFIG: ", names))
		}
		count := 0
		for rows.Next() {
			values := make([]any, len(names))
			targets := make([]any, len(names))
			for i := range values {
				targets[i] = &values[i]
			}
			assert.Check(rows.Scan(targets...))
			byName := map[string]any{}
			for i, name := range names {
				byName[name] = values[i]
			}
			for _, name := range numbers[show] {
				if _, ok := byName[name]; !ok {
					panic("SHOW " + show + " lacks " + name)
				}
				var number float64
				assert.Must(fmt.Sscan(asText(byName[name]), &number))
			}
			count++
		}
		assert.Check(rows.Err())
		fmt.Println(show, count > 0)
	}
}

func asText(value any) string {
	if bytes, ok := value.([]byte); ok {
		return string(bytes)
	}
	return fmt.Sprint(value)
}

func telegraf(url string) {
	background := context.Background()
	connection := assert.Must(pgx.Connect(background, url))
	defer connection.Close(background)
	for _, text := range []string{"SHOW STATS", "SHOW POOLS", "SHOW LISTS", "SHOW DATABASES", "SHOW CLIENTS", "SHOW MEM"} {
		rows := assert.Must(connection.Query(background, text))
		count := 0
		for rows.Next() {
			assert.Must(rows.Values())
			count++
		}
		assert.Check(rows.Err())
		fmt.Println(text, count > 0)
	}
}
