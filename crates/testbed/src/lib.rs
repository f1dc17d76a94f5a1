//! Throw-away database servers on private ports, for the demo and the tests.
