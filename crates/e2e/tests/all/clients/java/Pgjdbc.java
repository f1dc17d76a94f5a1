// What an application does with pgjdbc: every query mode, statements prepared by the server with binary transfer,
// batches, cursors, COPY, notifications, cancelling, autosave, metadata.

import java.io.StringReader;
import java.io.StringWriter;
import java.net.URI;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Statement;
import java.sql.Types;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import org.postgresql.PGConnection;
import org.postgresql.PGStatement;
import org.postgresql.util.PSQLException;

public class Pgjdbc {
    static URI url;

    public static void main(String[] arguments) throws Exception {
        url = URI.create(arguments[0]);
        for (String mode : List.of("simple", "extended", "extendedForPrepared", "extendedCacheEverything")) {
            try (Connection connection = connect("preferQueryMode=" + mode)) {
                reads(connection, mode);
                failures(connection, mode);
            }
        }
        try (Connection connection = connect("")) {
            kinds(connection);
            writes(connection);
            batches(connection);
            cursors(connection);
            copies(connection);
            notifications(connection);
            cancels(connection);
            metadata(connection);
        }
        try (Connection connection = connect("reWriteBatchedInserts=true&prepareThreshold=1")) {
            // Each is prepared by the server, and its predecessor closed on the way.
            steady("closing", () -> one(connection, "select title, votes as closing from film where id = 1"));
            batches(connection);
        }
        for (String autosave : List.of("never", "always", "conservative")) {
            try (Connection connection = connect("prepareThreshold=1&autosave=" + autosave)) {
                savepoints(connection, autosave);
            }
        }
        readOnly();
    }

    static Connection connect(String options) throws SQLException {
        String[] user = url.getUserInfo().split(":");
        return DriverManager.getConnection("jdbc:postgresql://" + url.getHost() + ":" + url.getPort() + url.getPath()
                + "?user=" + user[0] + "&password=" + user[1] + "&" + options);
    }

    static void expect(String what, Object got, Object expected) {
        if (!Objects.equals(got, expected)) {
            throw new AssertionError(what + ": " + got + ", not " + expected);
        }
    }

    static void print(String what, Object value) {
        System.out.println(what + " " + value);
    }

    /** Asks often enough that the later answers come from memory, and always expects the same. */
    static void steady(String what, Callable<Object> ask) throws Exception {
        Object first = ask.call();
        for (int round = 0; round < 20; round++) {
            Thread.sleep(10);
            expect(what, ask.call(), first);
        }
        print(what, first);
    }

    /** All rows of a result, with the names and types of its columns. */
    static List<Object> rows(ResultSet result) throws SQLException {
        var columns = result.getMetaData();
        List<Object> all = new ArrayList<>();
        for (int i = 1; i <= columns.getColumnCount(); i++) {
            all.add(columns.getColumnName(i) + " " + columns.getColumnTypeName(i));
        }
        while (result.next()) {
            List<Object> row = new ArrayList<>();
            for (int i = 1; i <= columns.getColumnCount(); i++) {
                Object value = result.getObject(i);
                if (value instanceof byte[] bytes) {
                    value = HexFormat.of().formatHex(bytes);
                } else if (value instanceof java.sql.Array array) {
                    value = Arrays.asList((Object[]) array.getArray());
                }
                row.add(value);
            }
            all.add(row);
        }
        result.close();
        return all;
    }

    static Object one(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery(sql)) {
            result.next();
            return result.getObject(1);
        }
    }

    static void reads(Connection connection, String mode) throws Exception {
        try (Statement statement = connection.createStatement()) {
            String sql = "select title, votes as " + mode + "_plain from film where id = 1";
            steady(mode, () -> rows(statement.executeQuery(sql)));
        }
        // After five executions it is prepared by the server, and its result is binary.
        String sql = "select title, genre, votes as " + mode + "_prepared from film where id = ?";
        try (PreparedStatement prepared = connection.prepareStatement(sql)) {
            for (int film : List.of(2, 100_000)) {
                prepared.setInt(1, film);
                steady(mode + ", prepared", () -> rows(prepared.executeQuery()));
            }
            expect("prepared", prepared.unwrap(PGStatement.class).isUseServerPrepare(), true);
        }
        // Prepared anew each time, unless the driver remembers it.
        steady(mode + ", again", () -> {
            try (PreparedStatement prepared = connection.prepareStatement(sql)) {
                prepared.setObject(1, 3, Types.BIGINT);
                return rows(prepared.executeQuery());
            }
        });
        try (Statement statement = connection.createStatement()) {
            statement.execute("select 1; update film set votes = 4 where id = 4; select votes from film where id = 4");
            List<Object> results = new ArrayList<>();
            for (boolean more = true; more || statement.getUpdateCount() != -1; more = statement.getMoreResults()) {
                results.add(statement.getUpdateCount() == -1 ? rows(statement.getResultSet()) : statement.getUpdateCount());
            }
            print(mode + ", several", results);
        }
    }

    static void failures(Connection connection, String mode) throws SQLException {
        for (String sql : List.of("select nothing from film", "select 1 / 0", "selec", "insert into film values (1, 'x')")) {
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                statement.execute();
                throw new AssertionError("no error");
            } catch (PSQLException error) {
                var server = error.getServerErrorMessage();
                print(mode, error.getSQLState() + " " + error.getMessage() + " " + server.getPosition() + " "
                        + server.getConstraint() + " " + server.getRoutine());
            }
        }
    }

    static void kinds(Connection connection) throws Exception {
        try (PreparedStatement prepared = connection.prepareStatement("select * from kinds order by id")) {
            steady("kinds", () -> rows(prepared.executeQuery()));
        }
        try (PreparedStatement prepared = connection.prepareStatement("select id, uid from kinds where uid = ? and exact > ?")) {
            prepared.setObject(1, java.util.UUID.fromString("12345678-9abc-def0-1234-56789abcdef0"));
            prepared.setBigDecimal(2, java.math.BigDecimal.ONE);
            steady("by uuid", () -> rows(prepared.executeQuery()));
        }
        try (PreparedStatement prepared = connection.prepareStatement("select id, votes as by_list from film where id = any(?) order by id")) {
            prepared.setArray(1, connection.createArrayOf("int4", new Integer[] {1, 2, 3}));
            steady("by list", () -> rows(prepared.executeQuery()));
        }
    }

    static void writes(Connection connection) throws SQLException {
        try (PreparedStatement write = connection.prepareStatement("update film set votes = ? where id = 3");
                PreparedStatement read = connection.prepareStatement("select votes as own from film where id = ?")) {
            read.setInt(1, 3);
            Callable<Object> votes = () -> rows(read.executeQuery()).get(1);
            for (int n = 0; n < 30; n++) {
                write.setInt(1, n);
                expect("updated", write.executeUpdate(), 1);
                for (int again = 0; again < 3; again++) {
                    expect("own write", votes.call(), List.of(n));
                }
            }
            connection.setAutoCommit(false);
            connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
            write.setInt(1, 1000);
            write.executeUpdate();
            expect("in the transaction", votes.call(), List.of(1000));
            connection.rollback();
            connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            connection.setAutoCommit(true);
            expect("after it", votes.call(), List.of(29));
        } catch (SQLException error) {
            throw error;
        } catch (Exception error) {
            throw new AssertionError(error);
        }
    }

    static void batches(Connection connection) throws SQLException {
        String sql = "insert into role (film_id, actor) values (?, ?)";
        try (PreparedStatement insert = connection.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
            for (int i = 0; i < 500; i++) {
                insert.setInt(1, i % 200 + 1);
                insert.setString(2, "batched " + i);
                insert.addBatch();
            }
            expect("batch", insert.executeBatch().length, 500);
            expect("keys", rows(insert.getGeneratedKeys()).size(), 503);
        }
        try (PreparedStatement insert = connection.prepareStatement(sql)) {
            for (int i = 0; i < 500; i++) {
                insert.setInt(1, i == 321 ? 100_000 : i % 200 + 1);
                insert.setString(2, "batched " + i);
                insert.addBatch();
            }
            insert.executeBatch();
            throw new AssertionError("no error");
        } catch (BatchUpdateException error) {
            expect("state", error.getSQLState(), "23503");
        }
        try (Statement statement = connection.createStatement()) {
            statement.addBatch("update film set votes = 70 where id = 70");
            statement.addBatch("update film set votes = votes + 1 where id in (70, 71)");
            statement.addBatch("delete from role where actor like 'batched%'");
            print("batch", Arrays.toString(statement.executeBatch()));
        }
        expect("left", one(connection, "select count(*) from role where actor like 'batched%'"), 0L);
        expect("votes", one(connection, "select votes from film where id = 70"), 71);
    }

    static void cursors(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        try (PreparedStatement prepared = connection.prepareStatement("select id from film where id <= ? order by id")) {
            prepared.setFetchSize(3);
            for (int rows : List.of(8, 9, 2, 0, 150, 3)) {
                prepared.setInt(1, rows);
                ResultSet result = prepared.executeQuery();
                for (int id = 1; id <= rows; id++) {
                    expect("next", result.next(), true);
                    expect("id", result.getInt(1), id);
                    // Something else is asked in between.
                    expect("votes", one(connection, "select title as between from film where id = " + id), "film " + id);
                }
                expect("end", result.next(), false);
            }
            prepared.setMaxRows(2);
            print("two rows", rows(prepared.executeQuery()));
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    static void copies(Connection connection) throws Exception {
        var copy = connection.unwrap(PGConnection.class).getCopyAPI();
        var text = new StringBuilder();
        for (int i = 0; i < 2000; i++) {
            text.append(i % 200 + 1).append("\tcopied ").append(i).append('\n');
        }
        expect("copied", copy.copyIn("copy role (film_id, actor) from stdin", new StringReader(text.toString())), 2000L);
        expect("count", one(connection, "select count(*) from role where actor like 'copied%'"), 2000L);
        var out = new StringWriter();
        expect("copied", copy.copyOut("copy (select film_id, actor from role where actor like 'copied%' order by id) to stdout", out), 2000L);
        expect("text", out.toString(), text.toString());
        try {
            copy.copyIn("copy film (id, title) from stdin", new StringReader("x\ty\n"));
            throw new AssertionError("no error");
        } catch (PSQLException error) {
            print("copy", error.getSQLState() + " " + error.getMessage());
        }
    }

    static void notifications(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement(); Connection other = connect("")) {
            statement.execute("listen channel");
            other.createStatement().execute("notify channel, 'hello'");
            var heard = connection.unwrap(PGConnection.class).getNotifications(10_000);
            print("notification", heard[0].getName() + " " + heard[0].getParameter());
            statement.execute("do $$ begin raise notice 'hello'; raise warning 'world'; end $$");
            for (SQLWarning warning = statement.getWarnings(); warning != null; warning = warning.getNextWarning()) {
                print("warning", warning.getSQLState() + " " + warning.getMessage());
            }
        }
    }

    static void cancels(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            var done = CompletableFuture.supplyAsync(() -> {
                try {
                    return "" + statement.execute("select pg_sleep(60)");
                } catch (SQLException error) {
                    return error.getSQLState();
                }
            });
            // The server ignores a cancel that comes before its query: asked until it is heard.
            while (!done.isDone()) {
                Thread.sleep(100);
                statement.cancel();
            }
            expect("cancelled", done.get(), "57014");
            statement.setQueryTimeout(1);
            try {
                statement.execute("select pg_sleep(60)");
                throw new AssertionError("no error");
            } catch (SQLException error) {
                expect("timeout", error.getSQLState(), "57014");
            }
        }
        expect("usable", one(connection, "select 1"), 1);
    }

    static void metadata(Connection connection) throws SQLException {
        var about = connection.getMetaData();
        print("server", about.getDatabaseProductName() + " " + about.getDatabaseMajorVersion());
        var found = List.of(
                rows(about.getTables(null, "public", "%", new String[] {"TABLE"})),
                rows(about.getColumns(null, "public", "kinds", "%")),
                rows(about.getPrimaryKeys(null, "public", "film")),
                rows(about.getImportedKeys(null, "public", "role")));
        print("metadata", found.toString().replace(connection.getCatalog(), "database"));
        try (PreparedStatement statement = connection.prepareStatement("select f.*, f.id + ? from film f where title = ?")) {
            print("parameters", statement.getParameterMetaData().getParameterTypeName(2));
            var columns = statement.getMetaData();
            print("nullable", columns.isNullable(1) + " " + columns.isNullable(3) + " " + columns.getColumnTypeName(5));
        }
    }

    /** Errors inside a transaction: `autosave` wraps each statement in a savepoint. */
    static void savepoints(Connection connection, String autosave) throws SQLException {
        connection.setAutoCommit(false);
        try (PreparedStatement read = connection.prepareStatement("select * from film where id = ?")) {
            read.setInt(1, 5);
            rows(read.executeQuery());
            rows(read.executeQuery());
            try {
                one(connection, "select nothing from film");
                throw new AssertionError("no error");
            } catch (SQLException error) {
                expect("state", error.getSQLState(), "42703");
            }
            String after;
            try {
                after = rows(read.executeQuery()).toString();
            } catch (SQLException error) {
                after = error.getSQLState();
            }
            print("autosave " + autosave, after);
            connection.rollback();
            // What the statement prepared by the server returns changes under it.
            connection.createStatement().execute("alter table film add column more int");
            try {
                after = rows(read.executeQuery()).toString();
            } catch (SQLException error) {
                after = error.getSQLState();
            }
            print("changed " + autosave, after);
            connection.rollback();
            var savepoint = connection.setSavepoint("here");
            connection.createStatement().execute("update film set votes = -1");
            connection.rollback(savepoint);
            connection.commit();
            expect("kept", one(connection, "select count(*) from film where votes = -1"), 0L);
            connection.commit();
        }
    }

    static void readOnly() throws Exception {
        for (String mode : List.of("ignore", "transaction", "always")) {
            try (Connection connection = connect("prepareThreshold=1&readOnlyMode=" + mode)) {
                connection.setReadOnly(true);
                String sql = "select title, votes as read_only_" + mode + " from film where id = 1";
                try (PreparedStatement prepared = connection.prepareStatement(sql)) {
                    steady("read only " + mode, () -> rows(prepared.executeQuery()));
                }
                connection.setAutoCommit(false);
                expect("in a transaction", one(connection, sql), "film 1");
                try {
                    connection.createStatement().execute("update film set votes = 1 where id = 1");
                    print("read only " + mode, "written");
                } catch (SQLException error) {
                    print("read only " + mode, error.getSQLState());
                }
                connection.rollback();
            }
        }
    }
}
