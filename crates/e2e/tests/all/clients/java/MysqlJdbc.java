// What an application does with Connector/J and with MariaDB Connector/J: text and server-side statements, fetch sizes,
// batches, transactions, errors.

import java.sql.*;
import java.util.*;

public class MysqlJdbc {
    interface Ask { String ask() throws Exception; }

    /** Asks often enough that the later answers come from memory, and always expects the same. */
    static void steady(String name, Ask ask) throws Exception {
        String first = ask.ask();
        for (int round = 0; round < 15; round++) {
            Thread.sleep(5);
            if (!ask.ask().equals(first)) throw new Exception(name + ": another answer");
        }
        System.out.println(name + " " + first);
    }

    static String rows(ResultSet rows) throws SQLException {
        StringBuilder text = new StringBuilder();
        int columns = rows.getMetaData().getColumnCount();
        while (rows.next()) {
            for (int column = 1; column <= columns; column++) text.append(rows.getString(column)).append(' ');
            text.append('/');
        }
        rows.close();
        return text.toString();
    }

    public static void main(String[] arguments) throws Exception {
        java.net.URI uri = new java.net.URI(arguments[1]);
        String[] account = uri.getUserInfo().split(":");
        String place = uri.getHost() + ":" + uri.getPort() + uri.getPath();
        for (String options : new String[] {"", "&useServerPrepStmts=true&cachePrepStmts=true", "&rewriteBatchedStatements=true&useCursorFetch=true&defaultFetchSize=3"}) {
            String url = "jdbc:" + arguments[0] + "://" + place + "?user=" + account[0] + "&password=" + account[1]
                + "&allowPublicKeyRetrieval=true&allowMultiQueries=true&sslMode=" + (arguments[0].equals("mysql") ? "DISABLED" : "disable") + options;
            try (Connection connection = DriverManager.getConnection(url)) {
                session(connection);
            }
        }
    }

    static void session(Connection connection) throws Exception {
        Statement statement = connection.createStatement();
        steady("plain", () -> rows(statement.executeQuery("SELECT id, title, votes AS plain FROM film WHERE id < 6 ORDER BY id")));
        PreparedStatement prepared = connection.prepareStatement("SELECT title, genre, votes AS prepared FROM film WHERE id = ? OR title = ?");
        steady("prepared", () -> {
            prepared.setInt(1, 3);
            prepared.setString(2, "film 9");
            return rows(prepared.executeQuery());
        });
        steady("kinds", () -> rows(statement.executeQuery("SELECT id, big, exact, approx, day, at FROM kinds WHERE id = 1")));
        connection.setAutoCommit(false);
        connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
        steady("in a transaction", () -> rows(statement.executeQuery("SELECT votes FROM film WHERE id = 8")));
        PreparedStatement insert = connection.prepareStatement("INSERT INTO role (film_id, actor) VALUES (?, ?)", Statement.RETURN_GENERATED_KEYS);
        for (int number = 0; number < 3; number++) {
            insert.setInt(1, 1);
            insert.setString(2, "new");
            insert.addBatch();
        }
        System.out.println("batch " + insert.executeBatch().length);
        System.out.println(rows(statement.executeQuery("SELECT COUNT(*) FROM role WHERE actor = 'new'")));
        connection.rollback();
        System.out.println(rows(statement.executeQuery("SELECT COUNT(*) FROM role WHERE actor = 'new'")));
        connection.setAutoCommit(true);
        System.out.println(statement.executeUpdate("UPDATE film SET votes = votes WHERE id < 4"));
        statement.execute("SELECT 1; SELECT title FROM film WHERE id = 1");
        System.out.println(rows(statement.getResultSet()) + statement.getMoreResults() + rows(statement.getResultSet()));
        for (String text : new String[] {"SELECT * FROM nothing", "nonsense", "INSERT INTO film VALUES (1, 'x', NULL, 0)"}) {
            try {
                statement.execute(text);
            } catch (SQLException error) {
                System.out.println(error.getErrorCode() + " " + error.getSQLState());
            }
        }
        ResultSet tables = connection.getMetaData().getColumns(connection.getCatalog(), null, "film", null);
        while (tables.next()) System.out.println(tables.getString("COLUMN_NAME") + " " + tables.getString("TYPE_NAME"));
        System.out.println(connection.isValid(2));
    }
}
