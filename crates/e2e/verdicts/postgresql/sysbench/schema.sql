CREATE TABLE "sbtest1" (id integer NOT NULL, k integer NOT NULL, c character(120) NOT NULL, pad character(60) NOT NULL, PRIMARY KEY (id));
