//! The rows for programs.

use serde_json::{Value, json};

use crate::figures::Figures;
use crate::row::Row;

/// One row.
#[must_use]
pub fn row(row: &Row) -> Value {
    let checks: Vec<Value> = row
        .checks
        .iter()
        .map(|check| {
            let relation = if check.at_least { "at least" } else { "at most" };
            json!({
                "what": check.what, "got": check.got, "relation": relation, "wanted": check.wanted, "met": check.met(),
            })
        })
        .collect();
    json!({
        "name": row.name,
        "size": row.size.map(|(number, what)| json!({ "number": number, "of": what })),
        "unit": row.unit.word(),
        "original": row.original.as_ref().map(figures),
        "ours": row.ours.as_ref().map(figures),
        "raw": row.floor.as_ref().map(figures),
        "ratio": row.ratio(),
        "p99_ratio": row.p99_ratio(),
        "wanted": checks,
        "note": row.note,
    })
}

fn figures(figures: &Figures) -> Value {
    json!({ "median": figures.median(), "p99": figures.p99(), "mean": figures.mean(), "count": figures.count() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Unit;

    #[test]
    fn a_row_has_all_its_figures() {
        let value = row(&Row::new("join", Unit::Seconds, vec![4.0], vec![1.0])
            .sized(40, "lockspaces")
            .ratio_wanted(0.25));
        assert_eq!(value["size"]["number"], 40);
        assert_eq!(value["original"]["median"], 4.0);
        assert_eq!(value["ratio"], 0.25);
        assert_eq!(value["wanted"][0]["met"], true);
        assert_eq!(value["raw"], Value::Null);
    }
}
