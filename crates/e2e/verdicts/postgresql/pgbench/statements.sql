select count(*) from pgbench_branches;
SELECT abalance FROM pgbench_accounts WHERE aid = 63139;
