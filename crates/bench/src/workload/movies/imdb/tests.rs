//! Files in IMDb's form. `excerpt` has invented rows in this form.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

/// The text of a file of the excerpt.
fn excerpt(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/workload/movies/imdb/excerpt");
    fs::read_to_string(directory.join(format!("{name}.tsv"))).unwrap()
}

/// A directory with the excerpt, one text changed, packed on request.
pub(in crate::workload) fn directory(name: &str, changed: (&str, &str, &str), packed: bool) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("freshet-imdb-{name}-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    for (file, _) in FILES {
        let mut text = excerpt(file);
        if file == changed.0 {
            assert!(text.contains(changed.1), "{file}: {:?}", changed.1);
            text = text.replacen(changed.1, changed.2, 1);
        }
        if packed {
            // Two gzip members, as in files that were concatenated.
            let mut bytes = Vec::new();
            let (first, second) = text.as_bytes().split_at(text.len() / 3);
            for part in [first, second] {
                let mut encoder = GzEncoder::new(&mut bytes, Compression::default());
                encoder.write_all(part).unwrap();
                encoder.finish().unwrap();
            }
            fs::write(directory.join(format!("{file}.tsv.gz")), bytes).unwrap();
        } else {
            fs::write(directory.join(format!("{file}.tsv")), text).unwrap();
        }
    }
    directory
}

/// The rows of each table, as PostgreSQL gets them.
fn rows(directory: &Path) -> Result<Vec<String>> {
    let imdb = Imdb::new(directory.to_owned());
    let imdb = imdb.open()?;
    let count = schema::tables(Family::Postgres).len();
    let mut rows = Rows::new(Family::Postgres, count);
    for number in 0..imdb.steps() {
        imdb.step(number, &mut rows)?;
    }
    let mut texts = vec![String::new(); count];
    while let Some((table, text)) = rows.take(0) {
        texts[table] = text;
    }
    Ok(texts)
}

#[test]
fn all_columns_are_read() {
    for packed in [false, true] {
        let directory = directory("columns", ("name.basics", "", ""), packed);
        let rows = rows(&directory).unwrap();
        fs::remove_dir_all(directory).unwrap();
        let titles: Vec<&str> = rows[TITLE].lines().collect();
        let at = UPDATED;
        assert_eq!(titles.len(), 7);
        assert_eq!(
            titles[0],
            format!("11\ttt0000011\tmovie\tThe Copper Lantern\tDie Kupferlaterne\t0\t1921\t\\N\t74\t{at}")
        );
        assert_eq!(
            titles[6],
            format!("12345679\ttt12345679\tmovie\tBack\\\\slash\tBack\\\\slash\t0\t\\N\t\\N\t\\N\t{at}")
        );
        let genres = "11\tDrama\n11\tMystery\n12\tDrama\n13\tComedy\n13\tFamily\n14\tComedy\n12345678\tWestern\n\
                      12345678\tAdventure\n12345678\tDrama\n12345679\tDocumentary\n";
        assert_eq!(rows[GENRE], genres);
        assert_eq!(rows[RATING_TABLE].lines().nth(3), Some("12345678\t10.0\t2210345"));
        assert_eq!(rows[PRINCIPAL].lines().count(), 9);
        assert_eq!(rows[PRINCIPAL].lines().nth(6), Some("12\t3\t103\twriter\tnovel \"Śnieg\""));
        // Lena occurs once, and blanks at the end do not make another Zoë.
        let characters = "11\t101\tLena\n11\t101\tThe Widow\n11\t102\tInspector \"Hawk\" Brandt\n12\t104\tZoë\n12\t104\tZoe\n\
                          12345678\t102\tCody O'Hara\n";
        assert_eq!(rows[CHARACTER], characters);
        assert_eq!(rows[NAME].lines().nth(3), Some(&*format!("104\tnm0000104\tZofia Żak\t1931\t2004\t{at}")));
        assert_eq!(rows[NAME].lines().nth(4), Some(&*format!("9999999\tnm9999999\t\t\\N\t\\N\t{at}")));
    }
}

#[test]
fn malformed_lines_are_told_with_file_and_number() {
    for (number, (file, from, to, told)) in [
        ("title.basics", "tt0000012\tmovie\t", "tt0000012\t", ["title.basics.tsv, line 3", "8 columns instead of 9"]),
        ("title.basics", "tt0000013", "nm13", ["title.basics.tsv, line 4", "\"nm13\" is not tt with a number"]),
        ("title.basics", "\t1958\t", "\tlate\t", ["title.basics.tsv, line 3", "\"late\" is not a number"]),
        (
            "title.basics",
            "primaryTitle",
            "title",
            ["title.basics.tsv, line 1", "the columns are not tconst, titleType"],
        ),
        ("title.ratings", "8.1", "81", ["title.ratings.tsv, line 4", "rating \"81\""]),
        ("title.principals", "[\"Zoë\"]", "Zoë", ["title.principals.tsv, line 6", "not a JSON list"]),
        (
            "title.principals",
            "tt0000012\t2",
            "tt99999999999\t2",
            ["title.principals.tsv, line 7", "is not tt with a number"],
        ),
        ("name.basics", "\t1931\t", "\t1931\t\t", ["name.basics.tsv, line 5", "7 columns instead of 6"]),
    ]
    .into_iter()
    .enumerate()
    {
        let directory = directory(&format!("malformed-{number}"), (file, from, to), false);
        let error = format!("{:#}", rows(&directory).expect_err(to));
        fs::remove_dir_all(directory).unwrap();
        assert!(told.iter().all(|told| error.contains(told)), "{error}");
    }
    let none = format!("{:#}", rows(Path::new("/nonexistent")).unwrap_err());
    assert!(none.contains("neither title.basics.tsv nor title.basics.tsv.gz"), "{none}");
}

#[test]
fn a_long_file_is_read_in_steps_and_no_line_is_lost() {
    let directory = directory("long", ("name.basics", "", ""), false);
    let mut text = "tconst\taverageRating\tnumVotes\n".to_owned();
    for number in 1..=20_000 {
        writeln!(text, "tt{number:07}\t5.5\t{number}").unwrap();
    }
    fs::write(directory.join("title.ratings.tsv"), text).unwrap();
    let imdb = Imdb::new(directory.clone());
    let imdb = imdb.open().unwrap();
    assert!(imdb.steps() > 5, "{}", imdb.steps());
    let mut rows = Rows::new(Family::Postgres, 6);
    let mut most = 0;
    for number in 0..imdb.steps() {
        let before = rows.count();
        imdb.step(number, &mut rows).unwrap();
        most = most.max(rows.count() - before);
    }
    // The ten thousand lines are read in three steps.
    assert!(most < 10_000, "{most}");
    let mut votes = Vec::new();
    while let Some((table, text)) = rows.take(0) {
        if table == RATING_TABLE {
            votes = text.lines().map(str::to_owned).collect();
        }
    }
    assert_eq!((votes.len(), votes[19_999].as_str()), (20_000, "20000\t5.5\t20000"));
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_directory_is_named_without_its_place() {
    assert_eq!(Imdb::new("/some/where/imdb's files".into()).settings()[0].1, "imdb_s_files");
}
