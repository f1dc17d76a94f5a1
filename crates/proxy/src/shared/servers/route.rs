//! Which server answers a read, as a pure function.

use freshet_types::Lsn;

/// Why a server answers no reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// It has not answered yet.
    Unknown,
    /// It is no standby.
    Primary,
    Down,
    LeftOut,
    /// Its timeline is not the primary's, or one of them is not known.
    Timeline,
    /// It has broken reads.
    Paused,
}

/// A server, as a read sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerView {
    /// Its index in the connection string.
    pub(crate) at: usize,
    pub(crate) obstacle: Option<Obstacle>,
    /// The position that it has replayed, as of its last answer.
    pub(crate) replayed: Option<Lsn>,
    /// Reads under way.
    pub(crate) in_use: usize,
}

/// Where a read goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To this server.
    Server(usize),
    /// Nowhere yet: one of these servers may have reached the floor since its last answer.
    Wait(Vec<usize>),
    /// No server may answer it.
    Primary,
}

/// Where a read goes whose answer must reflect everything up to `floor`.
pub(crate) fn route(floor: Lsn, servers: &[ServerView]) -> Route {
    let fit = || servers.iter().filter(|server| server.obstacle.is_none() && server.replayed.is_some());
    let reached = fit().filter(|server| server.replayed >= Some(floor));
    if let Some(server) = reached.min_by_key(|server| server.in_use) {
        return Route::Server(server.at);
    }
    let behind: Vec<usize> = fit().map(|server| server.at).collect();
    if behind.is_empty() { Route::Primary } else { Route::Wait(behind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(at: usize, replayed: u64, in_use: usize) -> ServerView {
        ServerView { at, obstacle: None, replayed: Some(Lsn(replayed)), in_use }
    }

    #[test]
    fn the_server_with_the_fewest_reads_among_those_that_have_reached_the_floor() {
        let servers = [server(1, 100, 3), server(2, 99, 0), server(3, 120, 2)];
        assert_eq!(route(Lsn(100), &servers), Route::Server(3));
        assert_eq!(route(Lsn(99), &servers), Route::Server(2));
        assert_eq!(route(Lsn(121), &servers), Route::Wait(vec![1, 2, 3]));
        assert_eq!(route(Lsn(0), &[]), Route::Primary);
    }

    #[test]
    fn none_with_an_obstacle_or_without_a_position() {
        use Obstacle::{Down, LeftOut, Paused, Primary, Timeline, Unknown};
        for obstacle in [Down, LeftOut, Paused, Primary, Timeline, Unknown] {
            let left_out = ServerView { obstacle: Some(obstacle), ..server(0, 200, 0) };
            assert_eq!(route(Lsn(1), &[left_out]), Route::Primary, "{obstacle:?}");
            assert_eq!(route(Lsn(1), &[left_out, server(1, 1, 9)]), Route::Server(1), "{obstacle:?}");
        }
        let lost = ServerView { replayed: None, ..server(0, 0, 0) };
        assert_eq!(route(Lsn(0), &[lost]), Route::Primary);
    }
}
