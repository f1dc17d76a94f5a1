CREATE TABLE "pgbench_accounts" (aid integer NOT NULL, bid integer, abalance integer, filler character(84), PRIMARY KEY (aid));
CREATE TABLE "pgbench_branches" (bid integer NOT NULL, bbalance integer, filler character(88), PRIMARY KEY (bid));
