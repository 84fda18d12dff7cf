//! Tests of the paxos machines.
