//! A machine's driver as untidy as the rules of driving allow.

use crate::machine::{Env, Input, IoFailure, Machine, NoSectors, OpId, Step};
use crate::timing::MonoTime;
use std::fmt::Debug;

/// Drives a machine, and before and after each of its inputs tells it things that are not meant for it: that operations it
/// never asked for completed, failed, timed out and completed late, and that time passed when it did not. It has to stay as it is.
#[derive(Debug)]
pub struct Noisy<'a, M>(pub &'a mut M);

impl<M: Machine + Clone + PartialEq + Debug> Noisy<'_, M> {
    fn disturb(&mut self, now: MonoTime, env: &Env<'_>) {
        let op = OpId(u32::MAX);
        let before = self.0.clone();
        for input in [
            Input::Completed { op, result: Ok(&NoSectors) },
            Input::Completed { op, result: Err(IoFailure::Os(5)) },
            Input::TimedOut { op },
            Input::Doubtful { op, failure: IoFailure::Os(5) },
            Input::CompletedLate { op, result: Ok(&NoSectors) },
            Input::CompletedLate { op, result: Err(IoFailure::Os(5)) },
        ] {
            let step = self.0.step(now, env, input);
            assert!(matches!(step, Step::Pending), "it answers for an operation of somebody else");
            assert_eq!(*self.0, before, "an operation of somebody else changes it");
        }
    }
}

impl<M: Machine + Clone + PartialEq + Debug> Machine for Noisy<'_, M> {
    type Outcome = M::Outcome;

    fn step(&mut self, now: MonoTime, env: &Env<'_>, input: Input<'_>) -> Step<M::Outcome> {
        self.disturb(now, env);
        let step = self.0.step(now, env, input);
        self.disturb(now, env);
        let before = self.0.clone();
        match &step {
            Step::Wait(until) if *until > now => match self.0.step(now, env, Input::Tick) {
                Step::Wait(again) => assert_eq!(again, *until, "it waits for another time after a tick"),
                _ => panic!("it does not wait any more after a tick that came early"),
            },
            Step::Io(_) | Step::Done { .. } => match self.0.step(now, env, Input::Tick) {
                Step::Pending | Step::Wait(_) => {}
                _ => panic!("a tick makes it do something"),
            },
            // The time it waits for may have come.
            Step::Wait(_) | Step::Pending => return step,
        }
        assert_eq!(*self.0, before, "a tick that came early changes it");
        step
    }
}
