//! Names of generated titles, people and characters.

use std::fmt::Write as _;

use crate::random::Random;

const ADJECTIVES: [&str; 32] = [
    "Silent",
    "Crimson",
    "Hidden",
    "Last",
    "Broken",
    "Golden",
    "Endless",
    "Frozen",
    "Secret",
    "Burning",
    "Distant",
    "Forgotten",
    "Savage",
    "Gentle",
    "Hollow",
    "Electric",
    "Midnight",
    "Lonely",
    "Velvet",
    "Restless",
    "Stolen",
    "Pale",
    "Wicked",
    "Falling",
    "Ancient",
    "Bitter",
    "Little",
    "Great",
    "Scarlet",
    "Wandering",
    "Perfect",
    "Invisible",
];
const NOUNS: [&str; 32] = [
    "River",
    "Garden",
    "Empire",
    "Stranger",
    "Harbour",
    "Mirror",
    "Winter",
    "Journey",
    "Kingdom",
    "Letter",
    "Shadow",
    "Summer",
    "Road",
    "House",
    "Promise",
    "Ocean",
    "Witness",
    "Dancer",
    "Island",
    "Machine",
    "Orchard",
    "Station",
    "Thief",
    "Daughter",
    "Mountain",
    "Circus",
    "Detective",
    "Bride",
    "Lighthouse",
    "Game",
    "Return",
    "Affair",
];
/// Some have apostrophes and letters outside ASCII, as real titles do.
const PLACES: [&str; 24] = [
    "",
    "of Paris",
    "of São Paulo",
    "at World's End",
    "of Kraków",
    "in Tōkyō",
    "of l'Été",
    "of Málaga",
    "of the North",
    "of Göteborg",
    "in O'Hara's Town",
    "of Marrakesh",
    "by Night",
    "in the Rain",
    "of Ölüdeniz",
    "of Kyïv",
    "of 1929",
    "of Żary",
    "of the Moon",
    "of Reykjavík",
    "in Berlin",
    "without End",
    "of Đà Nẵng",
    "of Trieste",
];
pub(super) const FIRST_NAMES: [&str; 24] = [
    "Ada", "Bruno", "Clara", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko", "Leo", "Mina",
    "Noor", "Oskar", "Paula", "Quentin", "Rosa", "Søren", "Tomás", "Uma", "Viktor", "Wanda", "Zoë",
];
pub(super) const LAST_NAMES: [&str; 32] = [
    "Abel",
    "Berg",
    "Costa",
    "Duval",
    "Eriksen",
    "Fischer",
    "García",
    "Haddad",
    "Ito",
    "Jensen",
    "Kovač",
    "Lindqvist",
    "Moreau",
    "Novák",
    "O'Neill",
    "Petrov",
    "Quist",
    "Rossi",
    "Sato",
    "Tanaka",
    "Urban",
    "Vega",
    "Weiss",
    "Xu",
    "Yilmaz",
    "Zhang",
    "Baker",
    "Chandra",
    "Okafor",
    "Silva",
    "Müller",
    "Dubois",
];
pub(in super::super) const GENRES: [&str; 18] = [
    "Drama",
    "Comedy",
    "Documentary",
    "Romance",
    "Action",
    "Crime",
    "Thriller",
    "Horror",
    "Adventure",
    "Mystery",
    "Family",
    "Fantasy",
    "Sci-Fi",
    "Biography",
    "History",
    "Music",
    "War",
    "Western",
];
pub(in super::super) const CATEGORIES: [&str; 9] =
    ["actor", "actress", "director", "writer", "producer", "composer", "cinematographer", "editor", "self"];
/// Types of the rows with a movie's title that are not movies, with their frequencies.
const OTHER_TYPES: [(&str, usize); 7] = [
    ("tvEpisode", 78),
    ("short", 9),
    ("tvSeries", 4),
    ("video", 4),
    ("tvMovie", 3),
    ("tvMiniSeries", 1),
    ("videoGame", 1),
];

/// The text of the n-th title. Distinct numbers give distinct texts.
pub(super) fn title_text(number: usize) -> String {
    const DISTINCT: usize = ADJECTIVES.len() * NOUNS.len() * PLACES.len();
    // A step by a prime visits every combination once and mixes the lists even among the first titles.
    let mixed = (number % DISTINCT) * 7919 % DISTINCT;
    let (adjective, noun) = (ADJECTIVES[mixed % 32], NOUNS[mixed / 32 % 32]);
    let place = PLACES[mixed / 1024];
    let part = number / DISTINCT;
    let mut text = format!("The {adjective} {noun} {place}").trim_end().to_owned();
    if part > 0 {
        let _ = write!(text, " {}", part + 1);
    }
    text
}

/// A type of title other than `movie`.
pub(super) fn other_type(random: &mut Random) -> &'static str {
    let mut left = random.below(100);
    for (kind, share) in OTHER_TYPES {
        if left < share {
            return kind;
        }
        left -= share;
    }
    OTHER_TYPES[0].0
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn titles_are_distinct() {
        let distinct: HashSet<String> = (0..60_000).map(title_text).collect();
        assert_eq!(distinct.len(), 60_000);
    }
}
