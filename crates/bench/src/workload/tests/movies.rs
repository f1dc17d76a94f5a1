//! The movie workloads other than title-5 on real servers.

use super::super::movies::imdb::tests::directory;
use super::*;

#[tokio::test]
async fn title_aggregates() {
    let reads =
        ["a genre by year", "busiest people", "namesakes", "ratings by genre", "ratings by type", "titles by decade"];
    let writes = ["add a genre", "add a vote", "remove a genre", "update a title"];
    let typed = "title-aggregates --movies 200 --transactions on";
    exercise(typed, "title-5 --movies 50", [&reads, &writes], "title_aggregates").await;
}

/// Loads the excerpt, reads its rows, and runs both workloads on it.
#[tokio::test]
async fn title_5_from_imdb_s_files() {
    let directory = directory("servers", ("name.basics", "", ""), true);
    let typed = format!("title-5 --imdb {}", directory.display());
    for target in databases("imdb") {
        let made_up = workload("title-5 --movies 50").unwrap();
        load(&made_up, &target).await;
        let workload_here = workload(&typed).unwrap();
        let wrong = workload_here.ready(&target).await.unwrap_err().to_string();
        assert!(wrong.contains("were loaded with --movies 50"), "{wrong}");
        assert_eq!(load(&workload_here, &target).await, 7 + 10 + 5 + 9 + 6 + 5);
        // The directory may be elsewhere when the workload runs.
        let workload_here = workload("title-5 --imdb elsewhere").unwrap();
        workload_here.ready(&target).await.unwrap();
        let (mut random, mut titles) = (Random::new(1), std::collections::BTreeSet::new());
        for _ in 0..100 {
            titles.insert(format!("{:?}", workload_here.draw_read(&mut random).1));
        }
        let expected = ["Back\\\\slash", "O'Hara's Last Ride", "The Copper Lantern", "Winter in Łódź"];
        assert_eq!(titles.into_iter().collect::<Vec<_>>(), expected.map(|title| format!("[Text(\"{title}\")]")));
        let [reads, writes] = counts(&workload_here, &target, Protocol::Prepared).await;
        assert!(reads["characters"] > 0 && writes["add a vote"] > 0);
        let people = "SELECT count(*) FROM title t JOIN title_principal p ON p.title_id = t.title_id \
                      JOIN name n ON n.name_id = p.name_id WHERE t.title = 'Winter in Łódź'";
        assert_eq!(text(&target, people).await, "3");
        let aggregates = workload("title-aggregates --imdb elsewhere").unwrap();
        aggregates.ready(&target).await.unwrap();
        counts(&aggregates, &target, Protocol::Text).await;
        let found = made_up.ready(&target).await.unwrap_err().to_string();
        assert!(found.contains("were loaded with --imdb freshet-imdb-servers"), "{found}");
    }
    // A malformed line leaves no data that would be taken for complete ones.
    let broken = super::super::movies::imdb::tests::directory("broken", ("title.ratings", "7.9", "seven"), false);
    let workload = workload(&format!("title-5 --imdb {}", broken.display())).unwrap();
    for target in databases("imdb_broken") {
        let error = format!("{:#}", workload.load(&target, &ProgressBar::hidden()).await.unwrap_err());
        assert!(error.contains("title.ratings.tsv, line 3"), "{error}");
        assert!(workload.ready(&target).await.is_err());
    }
    for directory in [directory, broken] {
        std::fs::remove_dir_all(directory).unwrap();
    }
}
