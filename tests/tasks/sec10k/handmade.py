"""A report made by hand: every fact is stated once, amid sentences that only mention its value or state another's."""

from __future__ import annotations

from dataclasses import replace

from lens_heads.tasks.sec10k.filings import Filing

NEEDLES = {
    "registrant_name": 'Halvorsen Paper Mills, Inc. (the "Company") makes fine papers.',
    "headquarters_city": "The Company's executive offices are located at 4 Mill St., Bangor, Maine 04401.",
    "headquarters_state": "The Company's executive offices are located at 4 Mill St., Bangor, Maine 04401.",
    "incorporation_state": "The Company was incorporated in Delaware in June 1931 as Halvorsen & Sons.",
    "incorporation_year": "The Company was incorporated in Delaware in June 1931 as Halvorsen & Sons.",
    "employees_count_total": "As of October 3, 1996, the Company employed approximately 1,480 persons.",
    "ceo_lastname": "Ann T. Quist has served as President and Chief Executive Officer since 1990.",
    "holder_record_amount": "At March 1, 1997, there were 389 holders of record of the Common Stock.",
}
FACTS = {
    "registrant_name": "HALVORSEN PAPER MILLS INC",
    "headquarters_city": "Bangor",
    "headquarters_state": "Maine",
    "incorporation_state": "Delaware",
    "incorporation_year": "1931",
    "employees_count_total": "1480",
    "ceo_lastname": "Quist",
    "holder_record_amount": "389",
}
SECTIONS = {
    "item_1": (
        "ITEM 1. BUSINESS\nGENERAL\n"
        f"{NEEDLES['registrant_name']} {NEEDLES['incorporation_state']} "
        "Its subsidiary, Dover Pulp Corp., was incorporated in Ohio in 1958. "
        "In 1974 the Company acquired Tidewater Board Co., a Virginia corporation. "
        "Halvorsen has approximately 212 employees engaged in research in Akron, Ohio.\n"
        f"EMPLOYEES {NEEDLES['employees_count_total']} Of these, 11,480 hours were lost to strikes."
    ),
    "item_2": (
        f"ITEM 2. PROPERTIES\n{NEEDLES['headquarters_city']} "
        "The headquarters of Dover Pulp Corp. are located in Akron, Ohio. A mill in Bangor, Maine is leased until 2007."
    ),
    "item_5": f"ITEM 5. MARKET\nDividends of $.389 a share were paid. {NEEDLES['holder_record_amount']}",
    "item_7": (
        "ITEM 7. RESULTS\nNet sales rose 4.2% to $61.3 million, chiefly in Delaware and Maine. "
        "Halvorsen believes its cash is adequate. Sales for 1931 are not shown. Prices fell in the fourth quarter. "
        "The number 1480 is the code of a paper grade. Mr. Quist declined to comment. Freight costs were lower. "
        "Halvorsen Paper Mills sold its Bangor forest. Interest of $389 was paid. Inventories were reduced."
    ),
    "item_10": (
        f"ITEM 10. OFFICERS\n{NEEDLES['ceo_lastname']} "
        "Paul Ruiz was Chief Executive Officer of Dover Pulp Corp. before. Dr. Ida Chang is Chief Financial Officer."
    ),
}
FILING = Filing("halvorsen_1996", "1234", 1996, "HALVORSEN PAPER MILLS INC", SECTIONS, FACTS)


def only(**sections: str) -> Filing:
    """The filing with these sections and no known facts."""
    return replace(FILING, sections=sections, facts={})
