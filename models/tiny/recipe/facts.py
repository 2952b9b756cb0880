"""Tables of facts and words from which the training text is made.

Everything here was written for this model. A line of a table is one fact; the
tables hold no sentences, those are in `phrases.py`.
"""

# "country: capital" pairs; "the" belongs to the country's name. A few places whose
# capital or status is disputed are left out on purpose.
_CAPITALS = """
Afghanistan: Kabul | Albania: Tirana | Algeria: Algiers | Andorra: Andorra la Vella
Angola: Luanda | Argentina: Buenos Aires | Armenia: Yerevan | Australia: Canberra
Austria: Vienna | Azerbaijan: Baku | the Bahamas: Nassau | Bahrain: Manama
Bangladesh: Dhaka | Barbados: Bridgetown | Belarus: Minsk | Belgium: Brussels
Belize: Belmopan | Benin: Porto-Novo | Bhutan: Thimphu | Bolivia: Sucre
Bosnia and Herzegovina: Sarajevo | Botswana: Gaborone | Brazil: Brasilia | Brunei: Bandar Seri Begawan
Bulgaria: Sofia | Burkina Faso: Ouagadougou | Burundi: Gitega | Cambodia: Phnom Penh
Cameroon: Yaounde | Canada: Ottawa | Chad: N'Djamena | Chile: Santiago
China: Beijing | Colombia: Bogota | Costa Rica: San Jose | Croatia: Zagreb
Cuba: Havana | Cyprus: Nicosia | the Czech Republic: Prague | Denmark: Copenhagen
the Dominican Republic: Santo Domingo | Ecuador: Quito | Egypt: Cairo | El Salvador: San Salvador
Eritrea: Asmara | Estonia: Tallinn | Eswatini: Mbabane | Ethiopia: Addis Ababa
Fiji: Suva | Finland: Helsinki | France: Paris | Gabon: Libreville
the Gambia: Banjul | Georgia: Tbilisi | Germany: Berlin | Ghana: Accra
Greece: Athens | Guatemala: Guatemala City | Guinea: Conakry | Guyana: Georgetown
Haiti: Port-au-Prince | Honduras: Tegucigalpa | Hungary: Budapest | Iceland: Reykjavik
India: New Delhi | Indonesia: Jakarta | Iran: Tehran | Iraq: Baghdad
Ireland: Dublin | Italy: Rome | Ivory Coast: Yamoussoukro | Jamaica: Kingston
Japan: Tokyo | Jordan: Amman | Kazakhstan: Astana | Kenya: Nairobi
Kuwait: Kuwait City | Kyrgyzstan: Bishkek | Laos: Vientiane | Latvia: Riga
Lebanon: Beirut | Lesotho: Maseru | Liberia: Monrovia | Libya: Tripoli
Liechtenstein: Vaduz | Lithuania: Vilnius | Luxembourg: Luxembourg | Madagascar: Antananarivo
Malawi: Lilongwe | Malaysia: Kuala Lumpur | the Maldives: Male | Mali: Bamako
Malta: Valletta | Mauritania: Nouakchott | Mauritius: Port Louis | Mexico: Mexico City
Moldova: Chisinau | Monaco: Monaco | Mongolia: Ulaanbaatar | Montenegro: Podgorica
Morocco: Rabat | Mozambique: Maputo | Myanmar: Naypyidaw | Namibia: Windhoek
Nepal: Kathmandu | the Netherlands: Amsterdam | New Zealand: Wellington | Nicaragua: Managua
Niger: Niamey | Nigeria: Abuja | North Korea: Pyongyang | North Macedonia: Skopje
Norway: Oslo | Oman: Muscat | Pakistan: Islamabad | Panama: Panama City
Papua New Guinea: Port Moresby | Paraguay: Asuncion | Peru: Lima | the Philippines: Manila
Poland: Warsaw | Portugal: Lisbon | Qatar: Doha | Romania: Bucharest
Russia: Moscow | Rwanda: Kigali | Samoa: Apia | San Marino: San Marino
Saudi Arabia: Riyadh | Senegal: Dakar | Serbia: Belgrade | Sierra Leone: Freetown
Singapore: Singapore | Slovakia: Bratislava | Slovenia: Ljubljana | Somalia: Mogadishu
South Africa: Pretoria | South Korea: Seoul | South Sudan: Juba | Spain: Madrid
Sudan: Khartoum | Suriname: Paramaribo | Sweden: Stockholm | Switzerland: Bern
Syria: Damascus | Tajikistan: Dushanbe | Tanzania: Dodoma | Thailand: Bangkok
Togo: Lome | Tunisia: Tunis | Turkey: Ankara | Turkmenistan: Ashgabat
Uganda: Kampala | Ukraine: Kyiv | the United Arab Emirates: Abu Dhabi | the United Kingdom: London
the United States: Washington, D.C. | Uruguay: Montevideo | Uzbekistan: Tashkent | Venezuela: Caracas
Vietnam: Hanoi | Yemen: Sana'a | Zambia: Lusaka | Zimbabwe: Harare
"""


def _pairs(table: str) -> list[tuple[str, str]]:
    """Read "left: right" entries that stand between bars or line ends."""
    entries = table.strip().replace("\n", " | ").split(" | ")
    return [(left.strip(), right.strip()) for left, right in (entry.split(": ") for entry in entries)]


def _words(table: str) -> list[str]:
    """Read a list of words or names that stand between commas."""
    return [word.strip() for word in table.replace("\n", " ").split(",") if word.strip()]


CAPITALS: dict[str, str] = dict(_pairs(_CAPITALS))

# Other names under which a country is asked for. The answer uses the name in the table above.
ALIASES = {
    "the United States": ["the USA", "the US", "America", "the United States of America"],
    "the United Kingdom": ["the UK", "Great Britain", "Britain"],
    "the United Arab Emirates": ["the UAE"],
    "the Netherlands": ["Holland"],
    "the Czech Republic": ["Czechia"],
    "Myanmar": ["Burma"],
}

NAMES = _words("""
Ada, Adam, Agnes, Aisha, Alan, Alice, Amir, Ana, Anders, Andrea, Anna, Anton, Arjun, Astrid, Ben,
Bianca, Bob, Boris, Bruno, Carla, Carlos, Cecilia, Charles, Chen, Chloe, Clara, Daniel, David,
Diana, Diego, Dmitri, Edith, Elena, Elias, Ella, Emil, Emma, Erik, Esther, Eva, Farid, Fatima,
Felix, Fiona, Frank, Freya, George, Giulia, Grace, Hana, Hannah, Harry, Hassan, Helen, Henry, Hugo,
Ibrahim, Ida, Igor, Ines, Ingrid, Irene, Isaac, Ivan, Jack, James, Jana, Jane, Jonas, Jorge, Julia,
Kai, Karim, Karl, Kate, Kenji, Lars, Laura, Layla, Leo, Lena, Lily, Linda, Lisa, Louis, Lucas, Lucy,
Luis, Maria, Marco, Marie, Mark, Marta, Martin, Mary, Max, Maya, Mei, Michael, Mia, Miguel, Mila,
Mohamed, Nadia, Nina, Noah, Nora, Olga, Oliver, Omar, Oscar, Paul, Pedro, Peter, Petra, Priya,
Rachel, Raj, Rosa, Ruth, Sam, Sara, Simon, Sofia, Stefan, Sven, Tariq, Thomas, Tim, Tom, Uma, Vera,
Victor, Walter, Wei, Yara, Yuki, Yusuf, Zara, Zoe
""")
NAMES_HELD_OUT = _words("""
Abel, Beatrice, Cosima, Desmond, Evelyn, Florian, Gustav, Hilda, Jasmin, Katrin, Leopold, Magnus,
Nikolai, Ottilie, Quentin, Roberta, Salma, Tobias, Ursula, Winston
""")

CITIES = _words("""
Amsterdam, Athens, Barcelona, Beijing, Berlin, Bogota, Boston, Brussels, Budapest, Cairo, Chicago,
Cologne, Copenhagen, Dakar, Delhi, Denver, Dublin, Edinburgh, Florence, Geneva, Hamburg, Hanoi,
Havana, Helsinki, Houston, Istanbul, Jakarta, Kyoto, Lagos, Lima, Lisbon, Liverpool, London, Lyon,
Madrid, Manila, Marseille, Melbourne, Miami, Milan, Montreal, Mumbai, Munich, Nairobi, Naples,
Osaka, Oslo, Ottawa, Paris, Porto, Prague, Riga, Rome, Santiago, Seattle, Seoul, Seville, Shanghai,
Singapore, Stockholm, Sydney, Tokyo, Toronto, Turin, Valencia, Vancouver, Venice, Vienna, Warsaw,
Zurich
""")
CITIES_HELD_OUT = _words("""
Antwerp, Bergen, Bristol, Cordoba, Dallas, Glasgow, Gothenburg, Leipzig, Lucerne, Nagoya, Phoenix,
Rotterdam
""")

ITEMS = _words("""
apples, balls, bananas, bags, batteries, belts, bikes, blankets, books, bottles, bowls, boxes,
brushes, buckets, cables, cakes, cameras, candles, caps, cards, chairs, clocks, coats, cookies,
cups, curtains, desks, doors, drums, eggs, envelopes, erasers, fans, flowers, forks, glasses,
gloves, hammers, hats, jackets, jars, keyboards, keys, knives, ladders, lamps, lemons, magnets,
maps, markers, melons, mirrors, mugs, nails, notebooks, onions, oranges, pans, pears, pencils,
pens, phones, pillows, pizzas, plants, plates, posters, pots, radios, ribbons, ropes, rulers,
sandwiches, scarves, screens, shelves, shirts, shoes, shovels, socks, spoons, stamps, tables,
tents, tickets, tomatoes, towels, toys, umbrellas, vases, wheels, whistles
""")
ITEMS_HELD_OUT = _words("""
anchors, baskets, compasses, flutes, helmets, kettles, lanterns, pumpkins, sofas, violins
""")

# Each line: unit asked from, unit asked to, factor, greatest count that is taught.
CONVERSIONS = [
    ("kilometre", "metres", 1000, 30),
    ("kilogram", "grams", 1000, 30),
    ("litre", "millilitres", 1000, 30),
    ("metre", "centimetres", 100, 60),
    ("centimetre", "millimetres", 10, 90),
    ("tonne", "kilograms", 1000, 30),
    ("hour", "minutes", 60, 24),
    ("minute", "seconds", 60, 30),
    ("day", "hours", 24, 14),
    ("week", "days", 7, 20),
    ("year", "months", 12, 20),
    ("foot", "inches", 12, 20),
    ("yard", "feet", 3, 20),
    ("century", "years", 100, 20),
    ("decade", "years", 10, 20),
    ("dozen", "pieces", 12, 20),
]
IRREGULAR_PLURALS = {"foot": "feet", "century": "centuries", "dozen": "dozen"}
# American spellings, used in questions only.
UNIT_SPELLINGS = {
    "kilometre": ["kilometer", "km"],
    "metre": ["meter", "m"],
    "metres": ["meters", "m"],
    "centimetre": ["centimeter", "cm"],
    "centimetres": ["centimeters", "cm"],
    "millimetres": ["millimeters", "mm"],
    "litre": ["liter"],
    "millilitres": ["milliliters", "ml"],
    "kilogram": ["kg"],
    "kilograms": ["kg"],
    "tonne": ["ton"],
    "grams": ["g"],
}

NUMBER_WORDS = _words("""
zero, one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen,
fourteen, fifteen, sixteen, seventeen, eighteen, nineteen, twenty
""")

DAYS = _words("Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday")
MONTHS = _words("""January, February, March, April, May, June, July, August, September, October,
November, December""")

# Lists that can be asked for by name; the name is used in the question.
LISTS = {
    "days of the week": DAYS,
    "months of the year": MONTHS,
    "seasons": _words("spring, summer, autumn, winter"),
    "continents": _words("Africa, Antarctica, Asia, Australia, Europe, North America, South America"),
    "planets": _words("Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus, Neptune"),
    "colours of the rainbow": _words("red, orange, yellow, green, blue, indigo, violet"),
    "primary colours": _words("red, yellow, blue"),
    "vowels": _words("a, e, i, o, u"),
    "letters of the alphabet": list("abcdefghijklmnopqrstuvwxyz"),
    "oceans": _words("Arctic, Atlantic, Indian, Pacific, Southern"),
    "five senses": _words("sight, hearing, touch, taste, smell"),
}

OPPOSITES = _pairs("""
hot: cold | big: small | up: down | left: right | fast: slow | happy: sad | good: bad | old: young
light: dark | open: closed | full: empty | high: low | long: short | hard: soft | early: late
clean: dirty | rich: poor | strong: weak | wet: dry | loud: quiet | near: far | thick: thin
true: false | day: night | inside: outside | first: last | always: never | begin: end
""")

# Pieces of reviews. A review is made of one subject and one or two verdicts of one kind.
REVIEW_SUBJECTS = _words("""
food, film, movie, book, hotel, room, service, staff, music, show, phone, battery, game, trip,
lesson, support, app, website, restaurant, coffee, concert, delivery, product, story, view
""")
GOOD_WORDS = _words("""
great, excellent, wonderful, lovely, fantastic, amazing, perfect, brilliant, delightful, superb,
very good, really nice, outstanding, charming
""")
BAD_WORDS = _words("""
terrible, awful, horrible, bad, poor, disappointing, boring, dreadful, useless, broken, very bad,
really slow, unpleasant, disgusting
""")
GOOD_VERDICTS = [
    "I loved it", "I enjoyed every minute", "I would come back", "highly recommended",
    "it made my day", "I am very happy with it", "it works like a charm", "best I have ever had",
]
BAD_VERDICTS = [
    "I hated it", "a waste of money", "I will never come back", "I want my money back",
    "it ruined my day", "I am very unhappy with it", "it stopped working", "worst I have ever had",
]
GOOD_WORDS_HELD_OUT = ["good", "really great", "very nice"]
BAD_WORDS_HELD_OUT = ["really bad", "very poor", "really awful"]

PLAIN_WORDS = _words("""
apple, river, stone, cloud, green, window, garden, paper, music, silver, winter, table, bridge,
candle, forest, rocket, orange, pencil, mountain, coffee, market, island, mirror, button, summer,
thunder, yellow, basket, copper, dragon, engine, feather, guitar, harbour, jungle, kitchen, lantern,
meadow, needle, ocean, pepper, castle, rabbit, saddle, tiger, umbrella, valley, water, zebra, hello,
world, good, morning, night, blue, red, happy, small, bright, quick, lazy, dog, cat, fox, bird, fish,
tree, moon, star, sun, rain, snow, wind, fire, house, road, train, ship, bread, cheese, milk, token,
node, cache, stream, packet, kernel, model, server, request, answer, the, a, is, and, on, in, over
""")
# Words outside ASCII for the echo task, so that copying bytes is learnt as well.
FOREIGN_WORDS = _words("""
café, naïve, über, señor, façade, Zürich, Köln, São, Ångström, piñata, crème, brûlée, 東京, 你好,
世界, Привет, мир, Γειά, 안녕, こんにちは, مرحبا, €, £, →, ✓, 😀, 🚀, 🎉, ½, °
""")
