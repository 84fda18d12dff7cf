//! What the thread of a lockspace does next.

use sanlock_lease::timing::MonoTime;

/// See [`next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Renew our lease. A look at the others follows it.
    Renew,
    /// Look at the others, for host ids that were never used are due (docs/decisions/0015), or something is to be tried again.
    Look,
    /// Nothing until then.
    Wait(Option<MonoTime>),
}

/// The choice: a renewal that is due goes before everything else. `None` for a renewal that runs or will not come again, and for a look
/// that runs or comes early enough with the next renewal.
pub(super) fn next(now: MonoTime, renewal: Option<MonoTime>, look: Option<MonoTime>) -> Next {
    let is_due = |at: Option<MonoTime>| at.is_some_and(|at| at <= now);
    if is_due(renewal) {
        Next::Renew
    } else if is_due(look) {
        Next::Look
    } else {
        Next::Wait(renewal.into_iter().chain(look).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_goes_first_and_a_look_has_its_own_time() {
        let at = |secs| Some(MonoTime::from_secs(secs));
        let now = MonoTime::from_secs(10);
        assert_eq!(next(now, at(10), at(9)), Next::Renew);
        assert_eq!(next(now, at(11), at(10)), Next::Look);
        assert_eq!(next(now, None, at(10)), Next::Look);
        assert_eq!(next(now, at(20), at(17)), Next::Wait(at(17)));
        assert_eq!(next(now, at(20), None), Next::Wait(at(20)));
        assert_eq!(next(now, None, None), Next::Wait(None));
    }
}
