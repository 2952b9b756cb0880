"""Pairs of related sentences from far-apart fields. The recipe checks the encoder with them, and
`gateway/engine/tests/engine/encoder.rs` has a table of its own.
"""

TABLE = [
    ("A man is eating food.", "Someone has a meal of bread and cheese."),
    ("The cat sleeps on the sofa.", "A kitten rests in a chair."),
    ("The central bank raised interest rates.", "Inflation made borrowing money more expensive."),
    ("The team won the football match.", "Our players scored two goals in the game."),
    ("It will rain in the mountains tomorrow.", "The weather forecast says there will be snow and wind."),
    ("She plays the violin in an orchestra.", "The musicians gave a concert of classical music."),
    ("How do I install the program on Linux?", "Download the software and run it on your computer."),
    ("The doctor gave the patient medicine.", "Nurses at the hospital treat sick people."),
    ("The train to Paris leaves at noon.", "Railway stations in France are busy."),
    ("The judge sent the thief to prison.", "Police arrested a man for the crime of robbery."),
    ("Plants need light and water to grow.", "The garden is full of flowers and trees."),
    ("The rocket carried a satellite into orbit.", "Astronauts travel through space to the moon."),
]
