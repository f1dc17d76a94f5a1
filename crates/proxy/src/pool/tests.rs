//! Order, limits and the end of waits, with connections that are none.

use std::pin::pin;
use std::task::Poll;

use super::*;

/// A connection that counts itself.
#[derive(Debug)]
struct Connection {
    number: usize,
    _alive: Arc<()>,
}

struct World {
    pools: Arc<Pools<Connection>>,
    alive: Arc<()>,
}

const A: &[u8] = b"a";
const B: &[u8] = b"b";

fn key(user: &str) -> Arc<PoolKey> {
    Arc::new(PoolKey { database: "d".to_owned(), user: user.to_owned() })
}

impl World {
    fn new(settings: PoolSettings) -> Self {
        Self { pools: Arc::new(Pools::new(settings, Arc::default())), alive: Arc::default() }
    }

    fn of_size(size: usize) -> Self {
        Self::new(PoolSettings { size, ..PoolSettings::default() })
    }

    /// Connections that are not closed.
    fn count(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }

    fn open(&self, number: usize) -> Connection {
        Connection { number, _alive: self.alive.clone() }
    }

    fn try_check_out(&self, user: &str, group: &[u8]) -> Option<Lease<Connection>> {
        self.pools.try_check_out(&key(user), &Group::of(group))
    }

    async fn check_out(&self, user: &str, group: &[u8]) -> Result<Lease<Connection>, WaitTimeout> {
        self.pools.check_out(&key(user), &Group::of(group)).await
    }

    fn waiting(&self) -> usize {
        self.pools.shown().iter().map(|pool| pool.waiting).sum()
    }

    fn idle(&self) -> usize {
        self.pools.shown().iter().map(|pool| pool.idle).sum()
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

/// Polls it once.
async fn is_pending<F: Future>(future: &mut std::pin::Pin<&mut F>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

#[test]
fn an_idle_connection_is_used_again_by_its_own_group_only() {
    let world = World::of_size(2);
    let mut lease = world.try_check_out("u", A).unwrap();
    assert!(lease.take().is_none(), "there was none yet");
    lease.give_back(world.open(1));
    let mut same = world.try_check_out("u", A).unwrap();
    assert_eq!(same.take().map(|connection| connection.number), Some(1));
    same.give_back(world.open(2));
    assert!(world.try_check_out("u", B).unwrap().take().is_none());
    assert!(world.try_check_out("v", A).unwrap().take().is_none());
    assert_eq!(world.idle(), 1);
}

#[test]
fn a_connection_of_another_group_makes_a_place() {
    let world = World::of_size(1);
    world.try_check_out("u", A).unwrap().give_back(world.open(1));
    assert_eq!(world.count(), 1);
    let mut lease = world.try_check_out("u", B).unwrap();
    assert!(lease.take().is_none() && world.count() == 0);
    assert!(world.try_check_out("u", A).is_none(), "the place is taken");
    drop(lease);
    assert!(world.try_check_out("u", A).is_some(), "a place is given back without a connection, too");
}

#[test]
fn a_pool_of_one_serves_in_order() {
    run(async {
        let world = World::of_size(1);
        let first = world.check_out("u", A).await.unwrap();
        let (mut second, mut third) = (pin!(world.check_out("u", A)), pin!(world.check_out("u", A)));
        assert!(is_pending(&mut second).await && is_pending(&mut third).await && world.waiting() == 2);
        assert!(world.try_check_out("u", A).is_none());
        first.give_back(world.open(7));
        assert!(world.try_check_out("u", A).is_none(), "nobody overtakes");
        assert!(is_pending(&mut third).await);
        let mut lease = second.await.unwrap();
        let connection = lease.take().unwrap();
        assert_eq!(connection.number, 7);
        drop((lease, connection));
        assert!(third.await.unwrap().take().is_none(), "the place of one that was closed");
    });
}

#[test]
fn a_waiter_of_another_group_gets_the_place() {
    run(async {
        let world = World::of_size(1);
        let first = world.check_out("u", A).await.unwrap();
        let mut second = pin!(world.check_out("u", B));
        assert!(is_pending(&mut second).await);
        first.give_back(world.open(1));
        assert!(second.await.unwrap().take().is_none());
        assert_eq!(world.count(), 0);
    });
}

#[test]
fn who_vanishes_leaves_the_queue_and_loses_nothing() {
    run(async {
        let world = World::of_size(1);
        let first = world.check_out("u", A).await.unwrap();
        let mut stays = pin!(world.check_out("u", A));
        {
            let mut goes = pin!(world.check_out("u", A));
            assert!(is_pending(&mut goes).await);
            assert!(is_pending(&mut stays).await && world.waiting() == 2);
        }
        assert_eq!(world.waiting(), 1);
        first.give_back(world.open(1));
        let mut lease = stays.await.unwrap();
        let connection = lease.take().unwrap();
        {
            let mut goes = pin!(world.check_out("u", A));
            assert!(is_pending(&mut goes).await);
            lease.give_back(connection); // handed over, and never received
            assert_eq!((world.waiting(), world.idle()), (0, 0));
        }
        assert_eq!((world.idle(), world.count()), (1, 1));
        assert!(world.try_check_out("u", A).unwrap().take().is_some());
    });
}

#[test]
fn a_wait_has_an_end() {
    run(async {
        let world = World::new(PoolSettings {
            size: 1,
            wait_timeout: Some(Duration::from_millis(20)),
            ..PoolSettings::default()
        });
        let _held = world.check_out("u", A).await.unwrap();
        let began = Instant::now();
        assert_eq!(world.check_out("u", A).await.err(), Some(WaitTimeout));
        assert!(began.elapsed() >= Duration::from_millis(20) && world.waiting() == 0);
        let figures = &world.pools.figures;
        assert_eq!((figures.timeouts.load(Relaxed), figures.check_outs.load(Relaxed)), (1, 1));
    });
}

#[test]
fn the_limit_over_all_pools_holds_and_is_shared() {
    run(async {
        let world = World::new(PoolSettings { size: 2, size_in_all: Some(3), ..PoolSettings::default() });
        let mut rich = vec![world.check_out("rich", A).await.unwrap(), world.check_out("rich", A).await.unwrap()];
        let other = world.check_out("other", A).await.unwrap();
        let (mut more, mut poor) = (pin!(world.check_out("other", A)), pin!(world.check_out("poor", A)));
        assert!(is_pending(&mut more).await && is_pending(&mut poor).await);
        // Who has none comes before who has one and has waited longer.
        drop(rich.pop());
        assert!(is_pending(&mut more).await);
        let of_poor = poor.await.unwrap();
        // What is idle in one pool makes a place in another.
        of_poor.give_back(world.open(1));
        assert!(more.await.unwrap().take().is_none());
        assert_eq!(world.count(), 0);
        drop(other);
    });
}

#[test]
fn idle_connections_are_closed_in_time() {
    let at_once = Some(Duration::ZERO);
    let world = World::new(PoolSettings { idle_timeout: at_once, ..PoolSettings::default() });
    world.try_check_out("u", A).unwrap().give_back(world.open(1));
    assert_eq!(world.count(), 1);
    world.pools.close_expired(|_| true);
    assert_eq!((world.count(), world.pools.shown().len()), (0, 0));
    let world = World::of_size(2);
    world.try_check_out("u", A).unwrap().give_back(world.open(1));
    world.pools.close_expired(|_| true);
    assert_eq!(world.count(), 1);
    let kept = world.try_check_out("u", B).unwrap();
    world.pools.reconnect(None);
    assert_eq!((world.count(), world.pools.shown().first().map(|pool| pool.in_use)), (0, Some(1)));
    drop(kept);
}

#[test]
fn old_connections_are_closed_once_they_are_idle() {
    run(async {
        let world = World::new(PoolSettings { size: 1, lifetime: Some(Duration::ZERO), ..PoolSettings::default() });
        let first = world.check_out("u", A).await.unwrap();
        let mut second = pin!(world.check_out("u", A));
        assert!(is_pending(&mut second).await);
        first.give_back(world.open(1));
        assert!(second.await.unwrap().take().is_none(), "a place for a new one");
        assert_eq!((world.count(), world.idle()), (0, 0));
    });
}

#[test]
fn one_user_does_not_keep_the_others_out() {
    run(async {
        let world = World::new(PoolSettings { size_in_all: Some(1), ..PoolSettings::default() });
        let first = world.check_out("rich", A).await.unwrap();
        let (mut second, mut poor) = (pin!(world.check_out("rich", A)), pin!(world.check_out("poor", A)));
        assert!(is_pending(&mut second).await && is_pending(&mut poor).await);
        let mut third = pin!(world.check_out("rich", A));
        assert!(is_pending(&mut third).await);
        // Who came before it is served before.
        first.give_back(world.open(1));
        assert!(is_pending(&mut poor).await && is_pending(&mut third).await);
        let mut lease = second.await.unwrap();
        lease.take();
        lease.give_back(world.open(2));
        let mut of_poor = poor.await.unwrap();
        assert!(of_poor.take().is_none() && world.count() == 0, "a place of its own");
        assert!(is_pending(&mut third).await);
        of_poor.give_back(world.open(3));
        assert!(third.await.unwrap().take().is_none());
    });
}

#[test]
fn users_have_equal_shares() {
    run(async {
        let world = World::new(PoolSettings { size_in_all: Some(4), ..PoolSettings::default() });
        let mut rich = Vec::new();
        for number in 0..4 {
            let mut lease = world.check_out("rich", A).await.unwrap();
            lease.take();
            rich.push((lease, world.open(number)));
        }
        let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(world.check_out("rich", A))).collect();
        let mut poor: Vec<_> = (0..4).map(|_| Box::pin(world.check_out("poor", A))).collect();
        for waiter in waiting.iter_mut().chain(&mut poor) {
            assert!(is_pending(&mut std::pin::Pin::new(waiter)).await);
        }
        for (lease, connection) in rich {
            lease.give_back(connection);
        }
        let in_use = || world.pools.shown().into_iter().map(|pool| (pool.in_use, pool.waiting)).collect::<Vec<_>>();
        assert_eq!(in_use(), [(2, 2), (2, 2)]);
    });
}

#[test]
fn the_reserve_is_for_who_has_waited() {
    run(async {
        let reserve_timeout = Some(Duration::from_millis(20));
        let world = World::new(PoolSettings { size: 1, reserve: 1, reserve_timeout, ..PoolSettings::default() });
        let _first = world.check_out("u", A).await.unwrap();
        let began = Instant::now();
        let second = world.check_out("u", A).await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(20));
        let mut third = pin!(world.check_out("u", A));
        assert!(timeout(Duration::from_millis(60), &mut third).await.is_err(), "the reserve has an end");
        drop(second);
        assert!(third.await.is_ok());
    });
}

#[test]
fn a_pool_has_its_minimum() {
    let at_once = Some(Duration::ZERO);
    let world = World::new(PoolSettings { min: 2, size: 3, idle_timeout: at_once, ..PoolSettings::default() });
    let leases: Vec<_> = (0..3).map(|_| world.try_check_out("u", A).unwrap()).collect();
    assert!(world.pools.place_below_minimum(&key("u"), &Group::of(A)).is_none());
    for (number, lease) in leases.into_iter().enumerate() {
        lease.give_back(world.open(number));
    }
    world.pools.close_expired(|_| true);
    assert_eq!((world.idle(), world.count()), (2, 2));
    world.pools.close_expired(|_| false);
    assert_eq!(world.count(), 0, "without a client");
    world.pools.reconnect(None);
    assert_eq!(world.count(), 0);
    world.pools.place_below_minimum(&key("u"), &Group::of(A)).unwrap().give_back(world.open(4));
    let _other = world.pools.place_below_minimum(&key("u"), &Group::of(A)).unwrap();
    assert!(world.pools.place_below_minimum(&key("u"), &Group::of(A)).is_none());
    assert!(world.try_check_out("u", A).unwrap().take().is_some());
}

#[test]
fn reconnect_closes_a_connection_when_it_is_given_back() {
    let world = World::of_size(2);
    let (mut used, idle) = (world.try_check_out("u", A).unwrap(), world.try_check_out("u", A).unwrap());
    idle.give_back(world.open(1));
    world.pools.reconnect(Some("other"));
    assert!(world.count() == 1 && !world.pools.has_earlier(None));
    world.pools.reconnect(Some("d"));
    assert!(world.count() == 0 && world.pools.has_earlier(None) && !world.pools.has_earlier(Some("other")));
    used.take();
    used.give_back(world.open(2));
    assert!(world.count() == 0 && !world.pools.has_earlier(None));
    let mut renewed = world.try_check_out("u", A).unwrap();
    world.pools.reconnect(None);
    renewed.renew();
    renewed.give_back(world.open(3));
    assert_eq!(world.idle(), 1);
}

#[test]
fn connections_with_fewer_names_can_become_others() {
    let world = World::of_size(2);
    let names = |names: &[&str]| -> Group {
        let names: Vec<Arc<str>> = names.iter().map(|name| (*name).into()).collect();
        Group::of(A).with(&names.into(), &Arc::default())
    };
    let check_out = |group: &Group| world.pools.try_check_out(&key("u"), group);
    let (mut first, second) = (check_out(&names(&[])).unwrap(), check_out(&names(&[])).unwrap());
    first.regroup(names(&["app.x"]));
    second.give_back(world.open(2));
    first.give_back(world.open(1));
    assert!(world.pools.try_check_out_same(&key("u"), &names(&["app.y"])).is_none());
    let mut same = world.pools.try_check_out_same(&key("u"), &names(&["app.x"])).unwrap();
    same.take().map(|connection| same.give_back(connection)).unwrap();
    // Its own group first, then the one that knows less.
    let mut own = check_out(&names(&["app.x"])).unwrap();
    assert_eq!(own.take().unwrap().number, 1);
    let mut less = check_out(&names(&["app.x", "app.y"])).unwrap();
    assert_eq!(less.take().unwrap().number, 2);
    less.regroup(names(&["app.x", "app.y"]));
    less.give_back(world.open(3));
    own.give_back(world.open(4));
    // One that knows more is closed for a place.
    assert!(check_out(&names(&[])).unwrap().take().is_none());
    assert_eq!(world.idle(), 1);
}

#[test]
fn connections_with_other_settings_can_become_others() {
    let world = World::of_size(2);
    let with = |setting: &str| Group::of(A).with(&Arc::default(), &[Arc::from(setting)].into());
    for (number, setting) in [(1, "jit=on"), (2, "jit=off")] {
        let mut lease = world.pools.try_check_out(&key("u"), &Group::of(B)).unwrap();
        lease.regroup(with(setting));
        lease.give_back(world.open(number));
    }
    let check_out = |group: &Group| world.pools.try_check_out(&key("u"), group).unwrap().take().map(|one| one.number);
    assert_eq!(check_out(&with("jit=on")), Some(1), "that of its own settings first");
    assert_eq!(check_out(&Group::of(A)), Some(2));
}

#[test]
fn a_thread_takes_its_own_connection_first() {
    let world = World::of_size(2);
    let (mine, other) = (world.try_check_out("u", A).unwrap(), world.try_check_out("u", A).unwrap());
    mine.give_back(world.open(1));
    let connection = world.open(2);
    std::thread::scope(|scope| scope.spawn(|| other.give_back(connection)).join()).unwrap();
    let mut leases = [1, 2].map(|_| world.try_check_out("u", A).unwrap());
    assert_eq!(leases.each_mut().map(|lease| lease.take().unwrap().number), [1, 2]);
}
