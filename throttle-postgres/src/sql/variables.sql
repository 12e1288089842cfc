-- What action.sql works with.
latest CONSTANT bigint := 4503599627370495;
clock bigint;
shape integer := 0;
simple boolean;
p bigint;
each bigint;
each_rest bigint;
most bigint;
most_rest bigint;
room bigint;
room_rest bigint;
debt bigint;
rest bigint;
state bigint[];
after bigint[];
expiry bigint;
expires bigint;
