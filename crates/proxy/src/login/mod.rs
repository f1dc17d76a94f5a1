//! How a client proves who it is: the parts that a login is made of.
