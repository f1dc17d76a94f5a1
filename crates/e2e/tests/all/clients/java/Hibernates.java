// What an application does with Hibernate: entities with a relation, queries of all kinds, a second session, versions
// (optimistic locking), batches, and a schema that Hibernate updates itself.

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.FetchType;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.JoinColumn;
import jakarta.persistence.LockModeType;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.Table;
import jakarta.persistence.Version;
import java.math.BigDecimal;
import java.net.URI;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.function.Function;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.boot.registry.BootstrapServiceRegistryBuilder;
import org.hibernate.cfg.Configuration;
import org.hibernate.exception.ConstraintViolationException;

public class Hibernates {
    /** Of the test's own schema. */
    @Entity(name = "Film")
    @Table(name = "film")
    public static class Film {
        @Id Integer id;
        String title;
        String genre;
        int votes;
        @OneToMany(mappedBy = "film") List<Role> roles = new ArrayList<>();

        /** Through this a proxy loads itself. */
        public String getTitle() {
            return title;
        }
    }

    @Entity(name = "Role")
    @Table(name = "role")
    public static class Role {
        @Id @GeneratedValue(strategy = GenerationType.IDENTITY) Integer id;
        @ManyToOne(fetch = FetchType.LAZY) @JoinColumn(name = "film_id") Film film;
        String actor;
    }

    /** Its table is made by Hibernate. */
    @Entity(name = "Ticket")
    @Table(name = "ticket")
    public static class Ticket {
        @Id @GeneratedValue(strategy = GenerationType.SEQUENCE) Long id;
        @Version int version;
        @Column(unique = true) String seat;
        BigDecimal price;
        LocalDate day;
    }

    static SessionFactory sessions;

    public static void main(String[] arguments) throws Exception {
        java.util.logging.Logger.getLogger("org.hibernate").setLevel(java.util.logging.Level.OFF);
        sessions = factory(URI.create(arguments[0]));
        reads();
        relations();
        writes();
        batches();
        versions();
        failures();
        sessions.close();
        // Once more over the schema that is there now.
        sessions = factory(URI.create(arguments[0]));
        print("tickets", in(session -> session.createQuery("select count(*) from Ticket", Long.class).getSingleResult()));
        sessions.close();
    }

    static SessionFactory factory(URI url) {
        String[] user = url.getUserInfo().split(":");
        // This class is compiled in memory, where Hibernate would not look for it.
        var loader = new BootstrapServiceRegistryBuilder().applyClassLoader(Hibernates.class.getClassLoader()).build();
        Configuration configuration = new Configuration(loader)
                .setProperty("hibernate.connection.url",
                        "jdbc:postgresql://" + url.getHost() + ":" + url.getPort() + url.getPath())
                .setProperty("hibernate.connection.username", user[0])
                .setProperty("hibernate.connection.password", user[1])
                .setProperty("hibernate.connection.autocommit", "true")
                .setProperty("hibernate.hbm2ddl.auto", "update")
                .setProperty("hibernate.jdbc.batch_size", "50")
                .setProperty("hibernate.order_inserts", "true");
        List.of(Film.class, Role.class, Ticket.class).forEach(configuration::addAnnotatedClass);
        return configuration.buildSessionFactory();
    }

    static void print(String what, Object value) {
        System.out.println(what + " " + value);
    }

    static void expect(String what, Object got, Object expected) {
        if (!Objects.equals(got, expected)) {
            throw new AssertionError(what + ": " + got + ", not " + expected);
        }
    }

    static void steady(String what, Callable<Object> ask) throws Exception {
        Object first = ask.call();
        for (int round = 0; round < 20; round++) {
            Thread.sleep(10);
            expect(what, ask.call(), first);
        }
        print(what, first);
    }

    /** In a session of its own, without a transaction: every statement commits by itself. */
    static <T> T in(Function<Session, T> work) {
        try (Session session = sessions.openSession()) {
            return work.apply(session);
        }
    }

    static List<Object> told(Film film) {
        return film == null ? List.of() : List.of(film.id, film.title, film.genre == null ? "-" : film.genre, film.votes);
    }

    static void reads() throws Exception {
        steady("find", () -> told(in(session -> session.find(Film.class, 1))));
        steady("find nothing", () -> told(in(session -> session.find(Film.class, 100_000))));
        steady("query", () -> in(session -> session.createQuery("from Film where genre = :genre and votes < 20 order by id", Film.class)
                .setParameter("genre", "drama").list().stream().map(Hibernates::told).toList()));
        steady("page", () -> in(session -> session.createQuery("select title from Film order by id", String.class)
                .setFirstResult(10).setMaxResults(3).list()));
        steady("criteria", () -> in(session -> {
            var builder = session.getCriteriaBuilder();
            var query = builder.createQuery(Film.class);
            var film = query.from(Film.class);
            query.where(builder.equal(film.get("title"), "film 7"));
            return told(session.createQuery(query).getSingleResult());
        }));
        steady("native", () -> in(session -> session
                .createNativeQuery("select votes as by_native from film where id = :id", Integer.class)
                .setParameter("id", 4).getSingleResult()));
        steady("transaction", () -> sessions.fromTransaction(session -> told(session.find(Film.class, 9))));
    }

    static void relations() throws Exception {
        steady("lazy", () -> in(session -> session.find(Film.class, 2).roles.stream().map(role -> role.actor).sorted().toList()));
        steady("fetched", () -> in(session -> session
                .createQuery("select f from Film f join fetch f.roles r where f.id = 3", Film.class)
                .getSingleResult().roles.stream().map(role -> role.actor).sorted().toList()));
        steady("proxy", () -> in(session -> session.find(Role.class, 10).film.getTitle()));
    }

    static void writes() {
        try (Session session = sessions.openSession()) {
            for (int n = 0; n < 20; n++) {
                int votes = n;
                session.beginTransaction();
                session.find(Film.class, 3).votes = votes;
                session.getTransaction().commit();
                session.clear();
                expect("own write", session.find(Film.class, 3).votes, votes);
            }
        }
        sessions.inTransaction(session -> {
            Role role = new Role();
            role.film = session.getReference(Film.class, 5);
            role.actor = "new";
            session.persist(role);
            print("identity", role.id);
            expect("within", session.createQuery("select count(*) from Role where actor = 'new'", Long.class).getSingleResult(), 1L);
        });
        print("updated", sessions.fromTransaction(session ->
                session.createMutationQuery("update Film set votes = votes + 1 where genre = 'comedy'").executeUpdate()));
    }

    static void batches() {
        sessions.inTransaction(session -> {
            for (int i = 0; i < 200; i++) {
                Ticket ticket = new Ticket();
                ticket.seat = "seat " + i;
                ticket.price = new BigDecimal(i).movePointLeft(1);
                ticket.day = LocalDate.of(2024, 2, 29);
                session.persist(ticket);
            }
        });
        print("batch", in(session -> session.createQuery("select count(*), sum(price), max(day) from Ticket", Object[].class)
                .list().stream().map(List::of).toList()));
        sessions.inTransaction(session -> session.createQuery("from Ticket where price < 5", Ticket.class)
                .stream().forEach(ticket -> ticket.price = ticket.price.add(BigDecimal.TEN)));
        print("changed", in(session -> session.createQuery("select sum(price) from Ticket", BigDecimal.class).getSingleResult()));
    }

    static void versions() {
        Function<Session, Ticket> first = session ->
                session.createQuery("from Ticket where seat = 'seat 0'", Ticket.class).getSingleResult();
        Ticket stale = in(first);
        try (Session session = sessions.openSession()) {
            session.beginTransaction();
            first.apply(session).price = BigDecimal.valueOf(2);
            session.getTransaction().commit();
            session.clear();
            Ticket seen = session.find(Ticket.class, stale.id);
            print("version", stale.version + " " + seen.version + " " + seen.price);
        }
        stale.price = BigDecimal.ONE;
        try {
            sessions.inTransaction(session -> session.merge(stale));
            throw new AssertionError("no error");
        } catch (OptimisticLockException error) {
            print("stale", error.getClass().getSimpleName());
        }
        sessions.inTransaction(session -> {
            Ticket locked = session.find(Ticket.class, stale.id, LockModeType.PESSIMISTIC_WRITE);
            locked.price = BigDecimal.ZERO;
        });
        expect("locked", sessions.fromTransaction(first).version, stale.version + 2);
    }

    static void failures() {
        try {
            sessions.inTransaction(session -> {
                Ticket twice = new Ticket();
                twice.seat = "seat 1";
                session.persist(twice);
            });
            throw new AssertionError("no error");
        } catch (ConstraintViolationException error) {
            print("twice", error.getSQLState());
        }
    }
}
