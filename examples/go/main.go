// A product page with pgx. Freshet is the address in the URL, and nothing else.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

func main() {
	ctx := context.Background()
	shop, err := pgx.Connect(ctx, os.Args[1]) // Freshet's address instead of the database's
	check(err)
	defer shop.Close(ctx)

	// The first reads of each page are answered by the database, the later ones by the cache.
	for visit := range 20 {
		for number := 1; number <= 5; number++ {
			line := page(ctx, shop, number)
			if visit == 0 {
				fmt.Println(line)
			}
		}
	}

	// A commit invalidates the page that it changes: the next read sees it, in this and in every other session.
	before := price(ctx, shop, 5)
	_, err = shop.Exec(ctx, "UPDATE product SET price = price + 1 WHERE id = $1", 5)
	check(err)
	fmt.Println("the new price is read:", price(ctx, shop, 5) == before+1)
}

func page(ctx context.Context, shop *pgx.Conn, number int) string {
	var name string
	var count int
	var stars float64
	check(shop.QueryRow(ctx, `SELECT p.name, count(r.id), avg(r.stars)::float8 FROM product p JOIN review r ON r.product_id = p.id
		WHERE p.id = $1 GROUP BY p.name`, number).Scan(&name, &count, &stars))
	return fmt.Sprintf("%s: %d reviews, %.1f stars", name, count, stars)
}

func price(ctx context.Context, shop *pgx.Conn, number int) (price int) {
	check(shop.QueryRow(ctx, "SELECT price FROM product WHERE id = $1", number).Scan(&price))
	return price
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
