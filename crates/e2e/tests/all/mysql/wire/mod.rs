//! A direct conversation with the server and one through Freshet are the same, packet by packet.

mod accounts;
mod closed;
mod deaths;
mod diagnostics;
mod doubts;
mod encryption;
mod found_rows;
mod handshakes;
mod infile;
mod large;
mod parameters;
mod prepared;
mod procedures;
mod replicating;
mod session;
mod simple;
mod tracking;
mod transactions;
mod vanishing;

/// What the conversations read: a table that can be cached, and one that they write to.
const SCHEMA: &str = "
    CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(10,2), born DATE, seen DATETIME(3));
    INSERT INTO item VALUES (1, 'item 1', 1.50, '2020-01-02', '2024-02-29 13:00:00'),
        (2, 'item 2', 3.00, '2020-01-03', '2024-02-29 14:00:00.250'), (3, NULL, 4.50, NULL, NULL),
        (4, '', 6.00, '2020-01-05', '2024-02-29 16:00:00'), (5, 'ünïcode ✓', -7.50, '2020-01-06', '2024-02-29 17:00:00');
    CREATE TABLE log (id INT PRIMARY KEY AUTO_INCREMENT, line VARCHAR(100) NOT NULL, n INT);";
