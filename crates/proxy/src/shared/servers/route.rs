//! Which server answers a read, as a pure function.

use std::sync::Arc;

use freshet_types::Lsn;

use crate::shared::servers::Found;

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
    /// It lags further than the operator allows.
    Lag,
    /// The operator wants no reads there.
    Weight,
}

/// The load of a server by reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Those under way.
    pub(crate) in_use: usize,
    /// Those that have begun there.
    pub(crate) turns: u64,
    pub(crate) weight: u32,
}

impl Load {
    /// The server with the lowest value is next: with the fewest reads under way, or else begun, for its weight.
    fn order(self) -> (u64, u64) {
        const ONE: u64 = 1 << 20;
        let weight = u64::from(self.weight.max(1));
        ((self.in_use as u64).saturating_mul(ONE) / weight, self.turns.saturating_mul(ONE) / weight)
    }
}

/// A server, as a read sees it.
#[derive(Clone, Debug)]
pub(crate) struct ServerView {
    /// Its index in the connection string.
    pub(crate) at: usize,
    pub(crate) obstacle: Option<Obstacle>,
    /// Its last answer.
    pub(crate) found: Option<Arc<Found>>,
    pub(crate) load: Load,
}

/// Where a read goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To this server.
    Server(Chosen),
    /// Nowhere yet: one of these servers may have reached the floor since its last answer.
    Wait(Vec<usize>),
    /// It is the primary's turn.
    Primary,
    /// There is no standby that may answer.
    Nowhere,
}

/// The server of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) at: usize,
    pub(crate) found: Arc<Found>,
    /// It has not reached the floor, but nothing in between touches the statement.
    pub(crate) lags: bool,
}

/// Where a read goes whose answer must reflect everything up to `floor`. `is_untouched`: no commit between this position and the floor touches the
/// statement. `primary`: its load, if it takes part by its weight.
pub(crate) fn route(
    floor: Lsn,
    servers: &[ServerView],
    primary: Option<Load>,
    is_untouched: impl Fn(Lsn) -> bool,
) -> Route {
    let fit = |server: &&ServerView| server.obstacle.is_none() && server.replayed().is_some();
    let mut fit: Vec<&ServerView> = servers.iter().filter(fit).collect();
    fit.sort_by_key(|server| server.load.order());
    for server in &fit {
        if primary.is_some_and(|primary| primary.order() < server.load.order()) {
            return Route::Primary;
        }
        if let (Some(found), Some(replayed)) = (&server.found, server.replayed()) {
            let lags = replayed < floor;
            if !lags || is_untouched(replayed) {
                return Route::Server(Chosen { at: server.at, found: found.clone(), lags });
            }
        }
    }
    if fit.is_empty() { Route::Nowhere } else { Route::Wait(fit.into_iter().map(|server| server.at).collect()) }
}

impl ServerView {
    /// The position that it has replayed, as of its last answer.
    fn replayed(&self) -> Option<Lsn> {
        self.found.as_ref()?.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::servers::Role;

    fn server(at: usize, replayed: u64, in_use: usize) -> ServerView {
        let found = Found {
            system_id: String::new(),
            postmaster_start: String::new(),
            role: Role::Standby,
            timeline: Some(1),
            position: Some(Lsn(replayed)),
            lag_seconds: String::new(),
            configuration: String::new(),
            gtids: None,
        };
        let load = Load { in_use, turns: 0, weight: 1 };
        ServerView { at, obstacle: None, found: Some(found.into()), load }
    }

    /// The server that answers, and whether it lags.
    fn chosen(route: &Route) -> Option<(usize, bool)> {
        if let Route::Server(chosen) = route { Some((chosen.at, chosen.lags)) } else { None }
    }

    #[test]
    fn the_server_with_the_fewest_reads_among_those_that_have_reached_the_floor() {
        let servers = [server(1, 100, 3), server(2, 99, 0), server(3, 120, 2)];
        let to = |floor| route(Lsn(floor), &servers, None, |_| false);
        assert_eq!(chosen(&to(100)), Some((3, false)));
        assert_eq!(chosen(&to(99)), Some((2, false)));
        assert_eq!(to(121), Route::Wait(vec![2, 3, 1]));
        assert_eq!(route(Lsn(0), &[], None, |_| true), Route::Nowhere);
    }

    #[test]
    fn a_server_that_lags_answers_what_nothing_behind_it_touches() {
        let servers = [server(1, 100, 3), server(2, 99, 0), server(3, 120, 2)];
        let to = |floor, untouched| chosen(&route(Lsn(floor), &servers, None, |at| at >= Lsn(untouched)));
        assert_eq!(to(130, 120), Some((3, true)));
        assert_eq!(to(130, 99), Some((2, true)), "the one with the fewest reads");
        assert_eq!(to(110, 100), Some((3, false)));
        assert_eq!(to(121, 121), None);
    }

    #[test]
    fn servers_answer_by_their_weights() {
        let weighs = |at, weight, in_use, answered| {
            let server = server(at, 100, 0);
            ServerView { load: Load { in_use, turns: answered, weight }, ..server }
        };
        let of =
            |servers: &[ServerView], primary| chosen(&route(Lsn(1), servers, primary, |_| false)).map(|(at, _)| at);
        assert_eq!(of(&[weighs(1, 1, 1, 0), weighs(2, 3, 2, 9)], None), Some(2), "two for 3 are less than one for 1");
        assert_eq!(of(&[weighs(1, 1, 1, 0), weighs(2, 3, 4, 0)], None), Some(1));
        assert_eq!(of(&[weighs(1, 1, 0, 5), weighs(2, 1, 0, 4)], None), Some(2), "of idle ones, in turns");
        let primary = |in_use, answered| Some(Load { in_use, turns: answered, weight: 1 });
        let standby = [weighs(1, 2, 0, 10)];
        assert_eq!(
            (of(&standby, primary(0, 4)), of(&standby, primary(0, 6)), of(&standby, primary(1, 0))),
            (None, Some(1), Some(1))
        );
        assert_eq!(
            route(Lsn(200), &standby, primary(9, 9), |_| false),
            Route::Wait(vec![1]),
            "it is the standby's turn"
        );
        // In the long run.
        let mut counts = [0_u64; 3];
        for _ in 0..600 {
            let servers = [weighs(0, 1, 0, counts[0]), weighs(1, 3, 0, counts[1])];
            let at = of(&servers, Some(Load { in_use: 0, turns: counts[2], weight: 2 })).unwrap_or(2);
            counts[at] += 1;
        }
        assert!(counts[0].abs_diff(100) < 3 && counts[1].abs_diff(300) < 3, "{counts:?}");
    }

    #[test]
    fn none_with_an_obstacle_or_without_a_position() {
        use Obstacle::{Down, Lag, LeftOut, Paused, Primary, Timeline, Unknown, Weight};
        for obstacle in [Down, Lag, LeftOut, Paused, Primary, Timeline, Unknown, Weight] {
            let left_out = ServerView { obstacle: Some(obstacle), ..server(0, 200, 0) };
            assert_eq!(route(Lsn(1), std::slice::from_ref(&left_out), None, |_| true), Route::Nowhere, "{obstacle:?}");
            let both = [left_out, server(1, 1, 9)];
            assert_eq!(chosen(&route(Lsn(1), &both, None, |_| true)), Some((1, false)), "{obstacle:?}");
        }
        let lost = ServerView { found: None, ..server(0, 0, 0) };
        assert_eq!(route(Lsn(0), &[lost], None, |_| true), Route::Nowhere);
    }
}
