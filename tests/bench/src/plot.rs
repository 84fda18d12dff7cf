//! The rows as pictures: how ours compares with the original row by row, and how cost grows with size.

use std::collections::BTreeMap;
use std::path::Path;

use plotters::prelude::*;

use crate::figures::Figures;
use crate::row::Row;

/// Pixels.
const WIDTH: u32 = 960;
const ROW_HEIGHT: u32 = 22;
const HEAD_HEIGHT: u32 = 56;
/// Where the bars begin: room for the longest name.
const LEFT: i32 = 330;
/// Room for the figure behind a bar.
const RIGHT: i32 = 70;
/// A bar ends here: ours needs twice as much as the original.
const RATIO_MAX: f64 = 2.0;
const LINES_SIZE: (u32, u32) = (640, 400);

const ORIGINAL: RGBColor = RGBColor(150, 150, 150);
const OURS: RGBColor = RGBColor(31, 119, 180);
const RAW: RGBColor = RGBColor(44, 160, 44);
const MISSED: RGBColor = RGBColor(214, 39, 40);
const FONT: &str = "sans-serif";

/// Draws `ratios-STORAGE.svg`, and one `STORAGE-NAME.svg` for each measure that was made with several sizes, into `dir`.
///
/// # Errors
/// A picture cannot be written; names it.
pub fn draw(dir: &Path, storage: &str, rows: &[Row]) -> Result<(), String> {
    let path = dir.join(format!("ratios-{storage}.svg"));
    ratios(&path, storage, rows).map_err(|error| format!("{}: {error}", path.display()))?;
    for (name, rows) in by_name(rows) {
        if rows.len() < 2 {
            continue;
        }
        let path = dir.join(format!("{storage}-{}.svg", file_word(name)));
        growth(&path, storage, name, &rows).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// The rows with sizes, by name.
fn by_name(rows: &[Row]) -> BTreeMap<&'static str, Vec<&Row>> {
    let mut names: BTreeMap<&'static str, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.size.is_some()) {
        let same = names.entry(row.name).or_default();
        // A number of something else belongs to another picture, and to none if it is alone.
        if same.first().is_none_or(|first| first.size.map(|size| size.1) == row.size.map(|size| size.1)) {
            same.push(row);
        }
    }
    names
}

fn file_word(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// How much of the original's time ours needs: for rates the other way round, so that shorter is better everywhere.
fn cost(row: &Row) -> Option<f64> {
    let ratio = row.ratio()?;
    Some(if row.unit.more_is_better() { 1.0 / ratio } else { ratio })
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn ratios(path: &Path, storage: &str, rows: &[Row]) -> Drawn {
    let rows: Vec<(&Row, f64)> = rows.iter().filter_map(|row| Some((row, cost(row)?))).collect();
    let height = HEAD_HEIGHT + ROW_HEIGHT * u32::try_from(rows.len())? + ROW_HEIGHT;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let font = |size: i32| (FONT, size).into_font();
    let title =
        format!("Ours in parts of the original, {storage} (shorter is better; red: a target is missed)");
    area.draw(&Text::new(title, (10, 10), font(16)))?;
    let x =
        |ratio: f64| LEFT + pixels(f64::from(WIDTH as i32 - LEFT - RIGHT) * ratio.min(RATIO_MAX) / RATIO_MAX);
    for tick in [0.0, 0.5, 1.0, 1.5, 2.0] {
        let colour = if tick == 1.0 { BLACK } else { ORIGINAL };
        let bottom = i32::try_from(height - ROW_HEIGHT)?;
        area.draw(&PathElement::new([(x(tick), 50), (x(tick), bottom)], colour.stroke_width(1)))?;
        area.draw(&Text::new(format!("{tick}"), (x(tick) - 8, 34), font(12)))?;
    }
    let mut top = i32::try_from(HEAD_HEIGHT)?;
    for (row, ratio) in rows {
        area.draw(&Text::new(row.title(), (10, top + 3), font(13)))?;
        let colour = if row.met() { OURS } else { MISSED };
        area.draw(&Rectangle::new([(LEFT, top + 3), (x(ratio), top + 17)], colour.filled()))?;
        area.draw(&Text::new(format!("{ratio:.2}"), (x(ratio) + 6, top + 3), font(12)))?;
        top += i32::try_from(ROW_HEIGHT)?;
    }
    area.present()?;
    Ok(())
}

fn growth(path: &Path, storage: &str, name: &str, rows: &[&Row]) -> Drawn {
    let size = |row: &Row| row.size.map_or(1, |(number, _)| number);
    let medians = |of: fn(&Row) -> Option<&Figures>| -> Vec<(f64, f64)> {
        rows.iter().filter_map(|row| Some((size(row) as f64, of(row)?.median()))).collect()
    };
    let lines = [
        ("original", ORIGINAL, medians(|row| row.original.as_ref())),
        ("ours", OURS, medians(|row| row.ours.as_ref())),
        ("without a daemon", RAW, medians(|row| row.floor.as_ref())),
    ];
    let points = || lines.iter().flat_map(|(_, _, points)| points);
    let right = points().map(|point| point.0).fold(1.0, f64::max);
    let high = points().map(|point| point.1).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let area = SVGBackend::new(path, LINES_SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{name}, {storage}"), (FONT, 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d((0.9..right * 1.1).log_scale().base(2.0), 0.0..high * 1.1)?;
    let what = rows.first().and_then(|row| row.size).map_or("", |(_, what)| what);
    let unit = rows.first().map_or("", |row| row.unit.word());
    chart.configure_mesh().x_desc(what).y_desc(unit).light_line_style(TRANSPARENT).draw()?;
    for (label, colour, points) in lines {
        if points.is_empty() {
            continue;
        }
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(ORIGINAL)
        .position(SeriesLabelPosition::UpperLeft)
        .draw()?;
    area.present()?;
    Ok(())
}

/// The nearest whole pixel.
#[expect(clippy::cast_possible_truncation, reason = "a place within a picture of a thousand pixels")]
fn pixels(place: f64) -> i32 {
    place.round() as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Unit;
    use sanlock_conformance::storage::scratch_dir;

    fn row(number: u64, original: f64, ours: f64) -> Row {
        Row::new("join", Unit::Seconds, vec![original], vec![ours]).sized(number, "lockspaces")
    }

    #[test]
    fn rates_are_turned_round() {
        let rate = Row::new("a", Unit::PerSecond, vec![100.0], vec![200.0]);
        assert_eq!(cost(&rate), Some(0.5));
        assert_eq!(cost(&row(1, 4.0, 1.0)), Some(0.25));
    }

    #[test]
    fn every_storage_has_its_pictures() {
        let dir = scratch_dir("plots");
        let rows = [row(1, 3.0, 3.0), row(8, 3.0, 3.0), row(40, 15.0, 3.1).ratio_wanted(0.1)];
        draw(dir.path(), "file", &rows).unwrap();
        let ratios = std::fs::read_to_string(dir.path().join("ratios-file.svg")).unwrap();
        assert!(ratios.contains("join (40 lockspaces)") && ratios.contains("#D62728"), "{ratios}");
        let growth = std::fs::read_to_string(dir.path().join("file-join.svg")).unwrap();
        assert!(growth.contains("lockspaces") && growth.contains("original"), "{growth}");
    }

    #[test]
    fn file_names_are_plain() {
        assert_eq!(file_word("acquires and releases, 62 hosts"), "acquires-and-releases-62-hosts");
    }
}
