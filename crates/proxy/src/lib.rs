//! Sessions, planning, prober, lease, coverage, catalogue loader, admin replies.
