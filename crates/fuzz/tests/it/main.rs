//! The properties of all inputs, on the inputs that were kept and on random ones.

mod corpus;
