//! Joining many lockspaces: after a clean stop, and after an unclean one under the same host name.

use std::time::{Duration, Instant};

use sanlock_conformance::bounded;
use sanlock_conformance::raw::flag;

use super::Setting;
use crate::row::{Row, Unit};
use crate::site::Site;

/// Lockspaces at most.
const SPACES_MAX: u64 = 40;
/// Joins and departures end within this time.
const LIMIT: Duration = Duration::from_secs(300);
/// Shortest io timeout: what is measured is what comes on top of the waits that it makes necessary.
const IO_TIMEOUT: u32 = 1;

/// Joins on hosts that left before.
#[must_use]
pub fn clean(setting: &Setting) -> Vec<Row> {
    let Some(place) = setting.place(2 * SPACES_MAX) else { return Vec::new() };
    let sites = Site::both(&place, SPACES_MAX, 1);
    for site in &sites {
        site.format_lockspaces(0..SPACES_MAX, IO_TIMEOUT);
    }
    let mut rows = Vec::new();
    for spaces in sizes(setting) {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..setting.pick(1, 3) {
            for (site, times) in sites.iter().zip(&mut times) {
                times.push(join(site, spaces));
                leave(site, spaces);
            }
        }
        let [original, ours] = times;
        let row = Row::new("join", Unit::Seconds, original, ours).sized(spaces, "lockspaces");
        rows.push(if spaces >= SPACES_MAX { row.ratio_wanted(0.25) } else { row.not_slower() });
    }
    rows
}

/// Joins of a daemon that was killed and started again under its host name.
#[must_use]
pub fn unclean(setting: &Setting) -> Vec<Row> {
    let sizes: Vec<u64> = if setting.quick { vec![1] } else { sizes(setting) };
    sizes.into_iter().filter_map(|spaces| unclean_row(setting, spaces)).collect()
}

fn unclean_row(setting: &Setting, spaces: u64) -> Option<Row> {
    let place = setting.place(2 * spaces)?;
    let mut sites = Site::both(&place, spaces, 1);
    let mut times = [Vec::new(), Vec::new()];
    for (site, times) in sites.iter_mut().zip(&mut times) {
        site.format_lockspaces(0..spaces, IO_TIMEOUT);
        let _ = join(site, spaces);
        site.hosts[0].kill();
        site.hosts[0].restart();
        times.push(join(site, spaces));
    }
    let [original, ours] = times;
    let row =
        Row::new("join after an unclean stop", Unit::Seconds, original, ours).sized(spaces, "lockspaces");
    Some(row.not_slower().noting(
        "the original takes its old host id at once though processes of its earlier life may still use the disk (W5); ours does \
         so only where it can know that they are gone",
    ))
}

fn sizes(setting: &Setting) -> Vec<u64> {
    setting.pick(vec![1, 8], vec![1, 8, SPACES_MAX])
}

/// Joins the lockspaces 0 to `spaces`; how many seconds it took until all were joined.
pub(super) fn join(site: &Site, spaces: u64) -> f64 {
    let begin = Instant::now();
    for area in 0..spaces {
        site.begin_join(area, IO_TIMEOUT);
    }
    // The list is given by the main loop of both programs; waiting by command would occupy the original's workers.
    wait_for(site, "all to be joined", |flags| {
        flags.len() as u64 == spaces && flags.iter().all(|flags| flags & flag::LSF_ADD == 0)
    });
    begin.elapsed().as_secs_f64()
}

fn leave(site: &Site, spaces: u64) {
    for area in 0..spaces {
        let left = site.connect(0).rem_lockspace(&site.lockspace(area, 1), flag::REM_ASYNC);
        assert_eq!(left, 0, "{}: leaving lockspace {area}", site.program.word());
    }
    wait_for(site, "all to be left", <[u32]>::is_empty);
}

fn wait_for(site: &Site, what: &str, condition: impl Fn(&[u32]) -> bool) {
    let what = format!("{}: {what}", site.program.word());
    bounded::wait_until(&what, LIMIT, || {
        let (_, list) = site.connect(0).get_lockspaces();
        condition(&list.iter().map(|lockspace| lockspace.flags).collect::<Vec<_>>())
    });
}
