//! A join that is wanted no longer (W33).

use super::{DeltaAcquire, Ours, Phase};
use crate::delta::{JoinError, JoinOutcome};
use crate::machine::{Env, IoFailure, LockspaceNow, Step, View};
use crate::timing::MonoTime;

impl DeltaAcquire {
    /// Whether removal or shutdown ends the join.
    pub(super) fn stopped(env: &Env<'_>) -> bool {
        env.lockspace == LockspaceNow::Gone || env.shutting_down
    }

    /// Whether somebody may have judged us dead since we wrote.
    pub(super) fn is_too_old(&self, now: MonoTime, ours: &Ours) -> bool {
        now.secs_since(ours.written) >= self.config.io_timeout.renewal_fail_secs()
    }

    /// W33: what was written is freed again, if it is still ours and nobody can have judged us dead yet.
    ///
    /// Not before the settling time is over: a competitor that saw the same record may be about to write, and would lose its host id to a
    /// write that frees ours, and hangs.
    pub(super) fn free_again(&mut self, now: MonoTime, ours: Ours) -> Step<JoinOutcome> {
        let end = Self::settled(now, &ours);
        if self.is_too_old(now.max(end), &ours) {
            return self.done(Err(JoinError::Stopped { freed: false }));
        }
        if now < end {
            self.phase = Phase::Settling(Ours { settled: Some(end), ..ours });
            return Step::Wait(end);
        }
        self.read(now, Phase::CheckBeforeFreeing(ours))
    }

    pub(super) fn after_check_before_freeing(
        &mut self,
        now: MonoTime,
        ours: Ours,
        result: Result<View<'_>, IoFailure>,
    ) -> Step<JoinOutcome> {
        if self.is_too_old(now, &ours) {
            return self.done(Err(JoinError::Stopped { freed: false }));
        }
        match self.own_record(result) {
            Ok(record) if record == ours.leader => {
                let mut free = ours.leader;
                free.timestamp = 0.into();
                free.seal();
                self.write(now, free, Phase::Freeing)
            }
            // Another host's by now: nothing of us is left.
            Ok(_) => self.done(Err(JoinError::Stopped { freed: true })),
            Err(_) => self.done(Err(JoinError::Stopped { freed: false })),
        }
    }
}
