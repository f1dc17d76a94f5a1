CREATE TABLE product (id int PRIMARY KEY, name text NOT NULL, price int NOT NULL);
CREATE TABLE review (id int PRIMARY KEY, product_id int NOT NULL REFERENCES product, stars int NOT NULL);
INSERT INTO product SELECT i, 'product ' || i, i * 10 FROM generate_series(1, 20) i;
INSERT INTO review SELECT i, i % 20 + 1, i % 5 + 1 FROM generate_series(1, 200) i;
