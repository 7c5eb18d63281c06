"""The executable specification: every decision of the cache, written a second time.

`specification` has one rule for each event, and names the page on which it goes on:

    kinds          what each kind of attention requires; what each policy says
    cache          the state, and the quantities that the rules ask for
    matching       how much of a prompt is known, and where it can be reused
    admission      what a request reuses, loads and takes when it starts
    growth         chunks, decode, windows that have passed, slots for states
    insertion      how computed pages become part of the tree
    copies         copies between the tiers
    eviction       what leaves a tier, and in which order
    prefetching    what is read from storage for a request that waits, and who waits for it
    fetches        what is fetched when storage has it
    publishing     how fetched pages become part of the tree
    stores         what is written to storage, and what is believed to be there
    attaching      storage comes and goes; flushes
    refusals       what a refusal says

Plain loops over a small state. It knows the vocabulary of the core and none of its decisions;
`lockstep` compares the two after every event.
"""
